"""Find the first op whose result differs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from onnxtfl.checking.localize import naming
from onnxtfl.checking.localize.coverage import FACTOR, SMALL, first_failure
from onnxtfl.checking.localize.engine import Engine, Layer
from onnxtfl.checking.localize.layers import LayerError
from onnxtfl.checking.localize.naming import layer_error
from onnxtfl.checking.models.pair import ModelPair
from onnxtfl.checking.report import CheckReport, with_notes
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.graph import Value
from onnxtfl.tracing.matches import Match
from onnxtfl.tracing.parts import temporary_directory
from onnxtfl.tracing.record import known_matches
from onnxtfl.tracing.trace import InnerModel
from onnxtfl.tracing.values import by_value

FEW = 0.6
"""If less than this share of the second model's tensors have a match, tensors are also matched by value."""


@dataclass(frozen=True)
class PerLayer:
    """Both models in one run. `values`, `fed`: the inputs of the first and of the second model; `kernels`: the kernel
    set of the second.
    """

    models: ModelPair
    values: Sequence[Any]
    fed: Sequence[Any]
    kernels: str

    def extend(self, report: CheckReport) -> CheckReport:
        """The report with the errors along the depth, and the first difference if it has failed."""
        try:
            with ExitStack() as stack:
                return self._extended(report, stack)
        except OnnxtflError as error:
            return with_notes(report, f"not compared layer by layer: {error}")

    def _extended(self, report: CheckReport, stack: ExitStack) -> CheckReport:
        folder = temporary_directory(stack)
        a, b, options = self.models.a, self.models.b, self.models.options
        plain = replace(options, kernels="builtin")
        first = a.traced(self.values, plain, folder)
        kernels = replace(options, kernels=self.kernels) if b.info.format == "tflite" else plain
        second = b.traced(self.fed, kernels, folder)
        until = time.perf_counter() + options.time_limit
        matches, how = self._matches(first, second, until)
        engine = Engine(first, second, matches, self.models.tolerance.expect, until, accumulated=True)
        layers = engine.run()
        if wrong := refuted([layer for layer in layers if layer.runs]):
            engine = replace(engine, matches=[match for match in matches if match.b not in wrong], layers=[])
            layers = engine.run()
        found = tuple(layer_error(first, second, layer) for layer in layers if layer.runs)
        notes = [_in_words(found, how)] if found else ["no tensors inside of the two models correspond"]
        if report.status != "failed":
            return with_notes(replace(report, layers=found), *notes, _of_agreeing(layers))
        worst = first_failure([layer for layer in layers if layer.runs or not report.outputs])
        difference = report.first_difference  # as the criteria found it, on the run that they judged
        if difference is None and worst is not None:
            difference = naming.difference(engine, worst)
        notes.append(str(difference) if difference else "no op differs on the values of the first model")
        return with_notes(replace(report, layers=found, first_difference=difference), *notes)

    def _matches(self, a: InnerModel, b: InnerModel, until: float) -> tuple[list[Match], str]:
        """Return the corresponding tensors, and a description of how they were matched."""
        found, how, recorded = known_matches(a, b, self.models.settings.tensors)
        infos = self.models.a.info.outputs, self.models.b.info.outputs
        outputs = [(infos[0][pair.a].name, infos[1][pair.b].name) for pair in self.models.outputs]
        found = _with_outputs(found, a, b, outputs)
        if not recorded and len(found) < FEW * len(b.changing):
            found, how = sorted([*found, *by_value(a, b, found, until)], key=lambda m: m.b), f"{how} and values"
        return found, how


def _with_outputs(
    matches: Sequence[Match], a: InnerModel, b: InnerModel, outputs: Sequence[tuple[str, str]]
) -> list[Match]:
    """The matches, and additional ones for outputs without a match."""
    ends = [dict(zip(m.graph.output_names, m.graph.outputs, strict=False)) for m in (a, b)]
    found = {match.b: match for match in matches}
    for name, other in outputs:
        i, j = a.number.get(ends[0].get(name, Value(None))), b.number.get(ends[1].get(other, Value(None)))
        if i is not None and j is not None and j in b.changing:
            found.setdefault(j, Match(i, j))
    return [found[j] for j in sorted(found)]


def refuted(layers: Sequence[Layer]) -> set[int]:
    """Return the tensors of the second model whose values differ from those of the same name in the first.

    They differ, but results computed from the second model's values agree; or they are a multiple that later ops
    expect.
    """
    errors = {layer.match.b: layer.error for layer in layers}
    multiples = {layer.match.b for layer in layers if layer.fails and layer.is_multiple and not layer.match.recorded}
    found = set[int]()
    for layer in layers:
        if layer.fails and layer.own is not None and layer.error < SMALL / FACTOR < SMALL < layer.own:
            found |= {i for i in layer.read if errors.get(i, 0.0) > SMALL}
        if layer.fails:
            found |= multiples & set(layer.read)
    return found


def _of_agreeing(layers: Sequence[Layer]) -> str:
    """Return the conclusion from layers of models whose outputs agree."""
    off = next((layer for layer in layers if layer.runs and layer.fails and (layer.own or 0.0) > SMALL), None)
    if off is None or off.check is None:
        return "no op differs"
    return f"the outputs agree, though {off.check.name!r} differs by {off.own:.2g} of its largest value"


def _in_words(layers: Sequence[LayerError], how: str) -> str:
    largest = max(layers, key=lambda layer: layer.error if math.isfinite(layer.error) else -1.0)
    return f"{len(layers)} tensors compared by {how}: largest error {largest.error:.2g}, of {largest.op} {largest.b!r}"
