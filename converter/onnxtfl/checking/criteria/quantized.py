"""Judge quantized models whose outputs differ: op by op, and by their distance from ONNX Runtime's emulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxtfl.checking.localize.quantized_ops import OpCheck, RunnableModel, compare_ops, in_words
from onnxtfl.checking.metrics.comparison import Expectation
from onnxtfl.checking.metrics.distances import Distances, Run, Three, measure
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.pairing.interface import Pair
from onnxtfl.checking.report import CheckReport
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.record import TensorEntry
from onnxtfl.runtimes import RunOptions


@dataclass(frozen=True)
class SecondLook:
    """Both models, how their outputs are paired, and how to feed them.

    ``feeds``: number of a run -> the inputs of ``a`` and of ``b``; run 0 is the one that was compared. ``tensors``: the
    record of the conversion. ``kernels``: the kernel set of the .tflite. ``seconds``: for distances on several inputs.
    """

    a: Side
    b: Side
    out_pairs: Sequence[Pair]
    feeds: Callable[[int], tuple[Sequence[Any], Sequence[Any]]]
    tensors: Sequence[TensorEntry]
    kernels: str
    options: RunOptions
    expect: Expectation
    seconds: Callable[[], float]

    def judge(self, report: CheckReport) -> CheckReport:
        """The report of two quantized models, passed if all ops agree; where ops cannot be compared, if the outputs
        are no further from the emulation than ONNX Runtime's integer kernels are. Other reports are returned as is.
        """
        quantized = self.a.facts.quantized and self.b.facts.quantized
        mixed = self.a.info.format != self.b.info.format
        comparable = all(spec.ok for spec in report.inputs) and all(out.max_abs is not None for out in report.outputs)
        if report.status != "failed" or not report.outputs or not (quantized and mixed and comparable):
            return report
        try:
            ops = self._op_by_op(0)
            if ops and any(out.message.startswith("in run") for out in report.outputs):
                ops += self._op_by_op(1) or []
            distances = self._distances()
        except OnnxtflError as error:
            return replace(report, notes=(*report.notes, f"not compared op by op: {error}"))
        notes = ([in_words(ops)] if ops else []) + list(map(str, distances))
        checks = [op.check for op in ops] if ops else distances
        if not checks or not all(check.ok for check in checks):
            return replace(report, notes=(*report.notes, *notes))
        how = "each op agrees" if ops else "no further from ONNX Runtime's float emulation than its integer kernels"
        outputs = tuple(
            replace(out, ok=True, message="", note=out.note or "differences add up") for out in report.outputs
        )
        return replace(report, status="passed", reason="", outputs=outputs, notes=(f"accepted: {how}", *notes))

    @property
    def _sides(self) -> tuple[Side, Side]:
        """The ONNX model and the TFLite model."""
        return (self.a, self.b) if self.a.info.format == "onnx" else (self.b, self.a)

    def _op_by_op(self, number: int) -> list[OpCheck] | None:
        fed = self.feeds(number)
        values = {id(side): side.hidden.given(given) for side, given in zip((self.a, self.b), fed, strict=True)}
        sides = self._sides
        onnx, tflite = (RunnableModel(s.info.path, s.worker, values[id(s)]) for s in sides if s.worker is not None)
        options = replace(self.options, **{"kernels": self.kernels, **sides[1].run_options})
        return compare_ops(onnx, tflite, self.tensors, sides[0] is self.a, options, self.expect)

    def _distances(self) -> list[Distances]:
        """How far the outputs are from the emulation; nothing if there are others than real and quantized ones."""
        onnx, tflite = self._sides
        if not all(info.dtype.startswith("float") or info.quantization for info in tflite.info.outputs):
            return []

        def run(number: int) -> Run:
            fed = dict(zip((id(self.a), id(self.b)), self.feeds(number), strict=True))
            runs = ((onnx, "builtin"), (onnx, "default"), (tflite, self.kernels))
            return self._aligned([side.run(fed[id(side)], replace(self.options, kernels=k)) for side, k in runs])

        names = [self.a.info.outputs[pair.a].name for pair in self.out_pairs]
        return measure(names, run, self.seconds())

    def _aligned(self, runs: Sequence[Sequence[Any]]) -> Run:
        """The outputs of emulation, integer kernels and TFLite, in the order of the first model."""
        found: Run = []
        onnx, tflite = self._sides
        for pair in self.out_pairs:
            i, j = (pair.a, pair.b) if onnx is self.a else (pair.b, pair.a)
            emulated, integer, other = runs[0][i], runs[1][i], runs[2][j]
            q = tflite.info.outputs[j].quantization if other.dtype.kind in "iu" else None
            found.append(Three(emulated, integer, other, q).aligned())
        return found
