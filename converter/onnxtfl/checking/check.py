"""Run two models on the same inputs and compare the outputs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from onnxtfl.checking.compare import Expectation, compare
from onnxtfl.checking.describe import ModelInfo, TensorInfo, describe
from onnxtfl.checking.facts import Facts, Range, analyze
from onnxtfl.checking.inputs import UnknownInputError, make_input, merge_user_inputs, numpy_type, open_shapes
from onnxtfl.checking.match import Layout, MismatchError, Pair, Permutation, is_moved, match, permutations
from onnxtfl.checking.report import CheckReport, InputUsed, OutputCheck
from onnxtfl.checking.ties import flips
from onnxtfl.errors import OnnxtflError, RuntimeUnavailableError, UnsupportedError
from onnxtfl.formats import files
from onnxtfl.ir.quantization import quantize
from onnxtfl.runtimes import RunError, RunOptions, Worker, runtime_for

PathLike = str | os.PathLike[str]
EXCUSES = frozenset({"unavailable", "unsupported", "timeout", "memory"})
"""Kinds of `RunError` that say nothing about whether the second model is valid."""


@dataclass(frozen=True)
class Settings:
    """The options of a check.

    ``rtol``, ``atol``: ``|b - a| <= rtol |a| + atol max|a|`` for floats. ``seed``: of the inputs. ``time_limit``:
    seconds for each run. ``layout``: "auto" accepts channels-last against channels-first, "source" does not,
    "channels-last" expects it where the shapes leave a choice. ``input_shapes``: sizes for open dimensions.
    ``kernels``: the kernel sets on which a .tflite as the second model must agree; the first model runs on the first.
    """

    rtol: float = 1e-3
    atol: float = 1e-4
    seed: int = 0
    time_limit: float = 300.0
    layout: Layout = "auto"
    kernels: tuple[str, ...] = ("default", "builtin")
    threads: int = 1
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


def check_models(
    a: PathLike, b: PathLike, settings: Settings | None = None, inputs: Mapping[str, Any] | None = None
) -> CheckReport:
    """Compare the .onnx or .tflite model ``b`` with ``a``, the reference.

    ``inputs``: arrays by ``a``'s names, for some or all inputs; the rest are generated. Returns a report in any case
    where both files can be read; raises `InvalidModelError`, and `UsageError` for an unknown input name.
    """
    started = time.perf_counter()
    settings = settings or Settings()
    with ExitStack() as stack:
        try:
            report = _Check(a, b, settings, stack).report(inputs)
        except UnsupportedError as error:  # a kind of value, or an op, that the readers do not know
            report = CheckReport("not checked", str(error))
    seconds = time.perf_counter() - started
    return replace(report, rtol=settings.rtol, atol=settings.atol, seed=settings.seed, seconds=seconds)


@dataclass
class _Side:
    """One of the two models: its inputs and outputs, the facts of its graph, and the process that runs it."""

    info: ModelInfo
    facts: Facts
    worker: Worker | None = None

    @classmethod
    def read(cls, path: PathLike, worker: Worker | None) -> _Side:
        """Read the graph; weights stay in the file. Raises `InvalidModelError` and `UnsupportedError`."""
        from onnxtfl.pipeline import lifted_where_possible  # imported while the workers import their runtimes

        model = files.read(path)
        info = describe(Path(path), model)  # before the graph is changed
        return cls(info, analyze(lifted_where_possible(model)), worker)

    def run(self, values: Sequence[Any], settings: Settings, kernels: str) -> list[Any]:
        assert self.worker is not None
        options = RunOptions(settings.threads, kernels, settings.time_limit)
        return self.worker.run(self.info.path, values, options)


class _Check:
    def __init__(self, a: PathLike, b: PathLike, settings: Settings, stack: ExitStack) -> None:
        self.settings = settings
        self.runtimes: list[str] = []
        self.problem = ""
        self.fed: list[Any] = []
        workers = [self._start(path, stack) for path in (a, b)]  # their imports run while the graphs are read
        self.a, self.b = _Side.read(a, workers[0]), _Side.read(b, workers[1])

    def _start(self, path: PathLike, stack: ExitStack) -> Worker | None:
        try:
            runtime = runtime_for(files.sniff(path))
            worker = stack.enter_context(runtime.worker())
            worker.start()
        except RuntimeUnavailableError as error:
            self.problem = self.problem or str(error)
            return None
        self.runtimes.append(f"{runtime.name} {runtime.version()}")
        return worker

    def report(self, given: Mapping[str, Any] | None) -> CheckReport:
        """Return the report, without the settings."""
        arrays = merge_user_inputs([info.name for info in self.a.info.inputs], given)
        if self.problem:
            return self._result("not checked", self.problem)
        try:
            pairs = self._match_inputs()
            out_pairs = match(self.a.info.outputs, self.b.info.outputs, "output", self.settings.layout)
        except MismatchError as error:
            return self._result("failed", str(error))
        try:
            values, words, expected = self._run_a(pairs, arrays)
        except UnknownInputError as error:
            return self._result("not checked", str(error))
        except RunError as error:
            return self._result("not checked", f"the first model does not run: {error}")
        return self._run_b(pairs, out_pairs, values, words, expected)

    def _match_inputs(self) -> list[Pair]:
        """Pair the inputs; where the shapes prove that one was permuted, permuted ones come first for all others."""
        a, b = self.a.info.inputs, self.b.info.inputs
        pairs = match(a, b, "input", self.settings.layout)
        if self.settings.layout == "auto" and any(pair.moved for pair in pairs):
            pairs = match(a, b, "input", "channels-last")
        return pairs

    def _run_a(self, pairs: list[Pair], given: Mapping[str, Any]) -> tuple[list[Any], list[str], list[Any]]:
        """Run the first model on the first sizes that it accepts; returns inputs, how they were chosen, outputs."""
        infos = _joined(self.a.info.inputs, self.b.info.inputs, pairs)
        fixed = {**self.settings.input_shapes, **{name: array.shape for name, array in given.items()}}
        failure: RunError | None = None
        empty: tuple[list[Any], list[str], list[Any]] | None = None
        for shapes in open_shapes(infos, fixed):
            values, words = self._make_inputs(infos, shapes, pairs, given)
            try:
                outputs = self.a.run(values, self.settings, self.settings.kernels[0])
            except RunError as error:
                failure = failure or error
                if error.kind != "run":
                    break
                continue
            self.fed = values
            if all(getattr(out, "size", 1) for out in outputs):
                return values, words, outputs
            empty = empty or (values, words, outputs)
        if empty is not None:
            self.fed = empty[0]
            return empty
        assert failure is not None
        raise failure

    def _make_inputs(
        self, infos: Sequence[TensorInfo], shapes: list[tuple[int, ...]], pairs: list[Pair], given: Mapping[str, Any]
    ) -> tuple[list[Any], list[str]]:
        values, words = [], []
        for k, (info, shape) in enumerate(zip(infos, shapes, strict=True)):
            other = self.b.info.inputs[pairs[k].b]
            if info.name in given:
                value, word = given[info.name].astype(numpy_type(info.dtype), copy=False), "given"
            else:
                value, word = make_input(info, shape, self._range(info, other), (self.settings.seed, k))
                value = _agreeable(value, info, other)
            values.append(value)
            words.append(word)
        return values, words

    def _range(self, a: TensorInfo, b: TensorInfo) -> Range | None:
        return self.a.facts.ranges.get(a.name) or self.b.facts.ranges.get(b.name)

    def _run_b(
        self, pairs: list[Pair], out_pairs: list[Pair], values: list[Any], words: list[str], expected: list[Any]
    ) -> CheckReport:
        """Run the second model and compare; where the shapes leave the layout open, each layout until one agrees."""
        first: CheckReport | None = None
        for attempt in range(max((len(pair.permutations) for pair in pairs), default=1)):
            chosen = [pair.permutations[min(attempt, len(pair.permutations) - 1)] for pair in pairs]
            used = tuple(self._used(pair, p, v, w) for pair, p, v, w in zip(pairs, chosen, values, words, strict=True))
            fed = self._inputs_of_b(pairs, chosen, values)
            run = partial(self._run_kernels, fed=fed, used=used, pairs=out_pairs, expected=expected)
            report = self._all_kernels(run)
            if report.status != "failed":
                return report
            first = first or report
        assert first is not None
        return first

    def _all_kernels(self, run: Callable[[str], CheckReport]) -> CheckReport:
        """Return the report of the main kernel set, or of the first other one that disagrees."""
        report = run(self.settings.kernels[0])
        if not report.ok or self.b.info.format != "tflite":
            return report
        for kernels in self.settings.kernels[1:]:
            other = run(kernels)
            if other.status == "failed":
                return replace(other, reason=f"with the {kernels} kernels: {other.reason}")
            if not other.ok:
                report = replace(report, notes=(*report.notes, f"{kernels} kernels not checked: {other.reason}"))
        return report

    def _run_kernels(
        self, kernels: str, fed: list[Any], used: tuple[InputUsed, ...], pairs: list[Pair], expected: list[Any]
    ) -> CheckReport:
        try:
            got = self.b.run(fed, self.settings, kernels)
        except RunError as error:
            status = "not checked" if error.kind in EXCUSES else "failed"
            return self._result(status, f"the second model does not run: {error}", used)
        return self._judge(pairs, used, expected, got)

    def _inputs_of_b(self, pairs: list[Pair], chosen: list[Permutation], values: list[Any]) -> list[Any]:
        result: list[Any] = [None] * len(pairs)
        for pair, permutation, value in zip(pairs, chosen, values, strict=True):
            info = self.b.info.inputs[pair.b]
            moved = value.transpose(permutation) if is_moved(permutation) else value
            result[pair.b] = _as_type(moved, self.a.info.inputs[pair.a], info)
        return result

    def _used(self, pair: Pair, permutation: Permutation, value: Any, words: str) -> InputUsed:
        """Return how an input is fed, and whether the second model has the expected type for it."""
        a, b = self.a.info.inputs[pair.a], self.b.info.inputs[pair.b]
        notes = [f"axes {list(permutation)}"] if is_moved(permutation) else []
        notes += [f"{a.dtype} became {b.dtype}"] if a.dtype != b.dtype else []
        kept, moved = _dtype_kept(a, b), is_moved(permutation)
        return InputUsed(a.name, a.dtype, tuple(value.shape), words, ", ".join(notes), kept, moved)

    def _judge(
        self, out_pairs: list[Pair], used: tuple[InputUsed, ...], expected: list[Any], got: list[Any]
    ) -> CheckReport:
        moved = any(spec.moved for spec in used)
        outputs = tuple(self._compare_output(pair, expected[pair.a], got[pair.b], moved) for pair in out_pairs)
        bad_input = next((spec for spec in used if not spec.ok), None)
        bad = next((out for out in outputs if not out.ok), None)
        if bad_input is not None:
            return self._result("failed", f"input {bad_input.name!r}: {bad_input.note}", used, outputs)
        if bad is not None:
            return self._result("failed", f"output {bad.name!r}: {bad.message}", used, outputs)
        return self._result("passed", "", used, outputs)

    def _compare_output(self, pair: Pair, expected: Any, got: Any, moved: bool) -> OutputCheck:
        """Compare one output; another layout is allowed where the shape proves it or inputs are permuted too."""
        a, b = self.a.info.outputs[pair.a], self.b.info.outputs[pair.b]
        expect = self._expectation(a, b)
        if isinstance(expected, list) or isinstance(got, list) or expected is None or got is None:
            return compare(a.name, expected, got, expect)
        layout = self.settings.layout
        ways = permutations(tuple(expected.shape), tuple(got.shape), layout)
        if not moved and layout == "auto":
            ways = ways[:1]
        first: OutputCheck | None = None
        for way in ways or [tuple(range(expected.ndim))]:
            result = compare(a.name, expected, got.transpose(_inverse(way)) if is_moved(way) else got, expect)
            if is_moved(way):
                result = replace(result, note=", ".join(part for part in (result.note, f"axes {list(way)}") if part))
            if result.ok:
                return result
            first = first or result
        assert first is not None
        return self._excuse(a, expected, got, first)

    def _excuse(self, a: TensorInfo, expected: Any, got: Any, result: OutputCheck) -> OutputCheck:
        """Accept positions chosen differently where the elements that they point to are nearly equal."""
        selection = self.a.facts.selections.get(a.name)
        if selection is None or expected.dtype != got.dtype or expected.dtype.kind not in "iu":
            return result
        from onnxtfl.checking.part import tensor_inside

        assert self.a.worker is not None
        options = RunOptions(self.settings.threads, self.settings.kernels[0], self.settings.time_limit)
        try:
            data = tensor_inside(self.a.info.path, selection.data, self.a.worker, self.fed, options)
        except OnnxtflError:
            return result
        count = flips(data, selection, expected, got, self.settings.rtol, self.settings.atol)
        note = f"{count} positions differ where elements are nearly equal"
        return result if count is None else replace(result, ok=True, message="", note=note)

    def _expectation(self, a: TensorInfo, b: TensorInfo) -> Expectation:
        step = self.a.facts.steps.get(a.name) or self.b.facts.steps.get(b.name)
        drawn = a.name in self.a.facts.drawn or b.name in self.b.facts.drawn
        return Expectation(self.settings.rtol, self.settings.atol, step, drawn, a.quantization, b.quantization)

    def _result(
        self, status: Any, reason: str, used: tuple[InputUsed, ...] = (), outputs: tuple[OutputCheck, ...] = ()
    ) -> CheckReport:
        return CheckReport(status, reason, used, outputs, runtimes=tuple(self.runtimes))


def _joined(a: Sequence[TensorInfo], b: Sequence[TensorInfo], pairs: Sequence[Pair]) -> list[TensorInfo]:
    """Return ``a`` with the sizes that only ``b`` knows; a symbol of ``a`` gets its size wherever it occurs."""
    symbols: dict[Any, int] = {}
    sized: dict[tuple[int, int], int] = {}
    for pair in pairs:
        dims_a, dims_b = a[pair.a].shape, b[pair.b].shape
        for k, axis in enumerate(pair.permutations[0] if dims_a and dims_b else ()):
            size = dims_b[k] if dims_b else None
            if isinstance(size, int) and dims_a and not isinstance(dims_a[axis], int):
                sized[pair.a, axis] = size
                if dims_a[axis] is not None:
                    symbols.setdefault(dims_a[axis], size)
    return [_sized(info, i, sized, symbols, b[pairs[i].b]) for i, info in enumerate(a)]


def _sized(
    info: TensorInfo, i: int, sized: Mapping[tuple[int, int], int], symbols: Mapping[Any, int], other: TensorInfo
) -> TensorInfo:
    if info.shape is None:
        return replace(info, shape=other.shape)
    dims = [sized.get((i, axis), symbols.get(dim, dim)) for axis, dim in enumerate(info.shape)]
    return replace(info, shape=tuple(dims))


def _agreeable(value: Any, a: TensorInfo, b: TensorInfo) -> Any:
    """Return generated values rounded to the narrower of the two float types, so that both models get the same."""
    if value.dtype.kind != "f" or a.dtype == b.dtype or not b.dtype.startswith("float"):
        return value
    return value.astype(numpy_type(b.dtype)).astype(value.dtype)


def _as_type(value: Any, a: TensorInfo, b: TensorInfo) -> Any:
    """Return an input of the first model in the element type of the second."""
    if a.dtype == b.dtype or "string" in (a.dtype, b.dtype):
        return value
    if b.quantization is not None and a.dtype.startswith("float"):
        return quantize(value, b.quantization)
    return value.astype(numpy_type(b.dtype))


def _dtype_kept(a: TensorInfo, b: TensorInfo) -> bool:
    """Tell whether the dtype is the same, or float64 narrowed, or a float quantized."""
    floats = {a.dtype, b.dtype} == {"float32", "float64"}
    quantized = (a.quantization is None) != (b.quantization is None) and "float32" in (a.dtype, b.dtype)
    return a.dtype == b.dtype or floats or quantized


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(permutation.index(axis) for axis in range(len(permutation)))
