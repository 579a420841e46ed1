"""Find the first op whose result differs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from onnxtfl.checking.compare import Expectation
from onnxtfl.checking.corresponding import Match, by_name, by_record
from onnxtfl.checking.depth import Depth, Layer
from onnxtfl.checking.inner_values import InnerModel
from onnxtfl.checking.layers import FirstDifference, LayerError
from onnxtfl.checking.part import temporary_directory
from onnxtfl.checking.record_in_file import record_of_pair
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.sides import Side
from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.record import TensorEntry
from onnxtfl.runtimes import RunOptions


@dataclass(frozen=True)
class PerLayer:
    """Both models, the values of their inputs, the outputs that are paired (by name), and how to compare.

    `entries`: the record of the conversion of `a` to `b`, empty to look for one. `kernels`: of the second model.
    """

    a: Side
    b: Side
    values: tuple[Sequence[object], Sequence[object]]
    outputs: Sequence[tuple[str, str]]
    entries: Sequence[TensorEntry]
    kernels: str
    options: RunOptions
    expect: Expectation

    def extend(self, report: CheckReport) -> CheckReport:
        """The report with the errors along the depth, and the first difference if it has failed."""
        try:
            with ExitStack() as stack:
                return self._extended(report, stack)
        except OnnxtflError as error:
            return replace(report, notes=(*report.notes, f"not compared layer by layer: {error}"))

    def _extended(self, report: CheckReport, stack: ExitStack) -> CheckReport:
        folder = temporary_directory(stack)
        plain = replace(self.options, kernels="builtin")
        kernels = replace(self.options, kernels=self.kernels) if self.b.info.format == "tflite" else plain
        first = InnerModel.of(self.a, self.values[0], plain, folder)
        second = InnerModel.of(self.b, self.values[1], kernels, folder)
        matches, how = self._matches(first, second)
        depth = Depth(first, second, matches, self.expect, time.perf_counter() + self.options.time_limit)
        layers = depth.run()
        found = tuple(_layer_error(first, second, layer) for layer in layers)
        notes = [_in_words(found, how)] if found else ["no tensors inside of the two models correspond"]
        if report.status != "failed":
            return replace(report, layers=found, notes=(*report.notes, *notes, "no op differs"))
        worst = first_failure(layers)
        difference = None if worst is None else _difference(first, second, worst, layers)
        notes.append(str(difference) if difference else "no op differs on the values of the first model")
        return replace(report, layers=found, first_difference=difference, notes=(*report.notes, *notes))

    def _matches(self, a: InnerModel, b: InnerModel) -> tuple[list[Match], str]:
        """The tensors that correspond, and by what in words."""
        record = None if self.entries else record_of_pair(a, b)
        if self.entries:
            found, how = by_record(a, b, self.entries, back=False), "the record of the conversion"
        elif record is not None:
            found, how = by_record(a, b, record.entries, record.back), record.where
        else:
            found, how = by_name(a, b), "equal names"
        return _with_outputs(found, a, b, self.outputs), how


def _with_outputs(
    matches: Sequence[Match], a: InnerModel, b: InnerModel, outputs: Sequence[tuple[str, str]]
) -> list[Match]:
    """The matches, and those of outputs that no other covers."""
    ends = [dict(zip(m.graph.output_names, m.graph.outputs, strict=False)) for m in (a, b)]
    found = {match.b: match for match in matches}
    for name, other in outputs:
        i, j = a.number.get(ends[0].get(name, Value(None))), b.number.get(ends[1].get(other, Value(None)))
        if i is not None and j is not None and j in b.changing:
            found.setdefault(j, Match(i, j))
    return [found[j] for j in sorted(found)]


def first_failure(layers: Sequence[Layer]) -> Layer | None:
    """The first layer whose own error is beyond the tolerance; if there is none, that with the largest."""
    failing = next((layer for layer in layers if layer.fails), None)
    if failing is not None:
        return failing
    known = [layer for layer in layers if layer.own]
    return max(known, key=lambda layer: layer.own or 0.0, default=None)


def _difference(a: InnerModel, b: InnerModel, layer: Layer, layers: Sequence[Layer]) -> FirstDifference:
    before = {other.match.b: other.error for other in layers}
    error_in = max((before.get(i, 0.0) for i in layer.read), default=0.0)
    made_of = {other.match.b: other.match.a for other in layers}
    stops = {made_of[i] for i in layer.read if i in made_of}
    nodes, _ = a.between(layer.match.a, stops)
    node_a = a.values[layer.match.a].producer
    node_b = layer.nodes[-1] if layer.nodes else b.values[layer.match.b].producer
    named = node_b if b.format == "onnx" else node_a
    return FirstDifference(
        _name(a.values[layer.match.a]),
        _name(b.values[layer.match.b]),
        display(named),
        _op(node_b),
        layer.error if layer.own is None else layer.own,
        error_in,
        display(node_a),
        _op(node_a),
        display(node_b),
        _op(node_b),
        tuple(map(display, nodes)),
    )


def _layer_error(a: InnerModel, b: InnerModel, layer: Layer) -> LayerError:
    node_a, node_b = a.values[layer.match.a].producer, b.values[layer.match.b].producer
    named = node_b if b.format == "onnx" else node_a
    names = _name(a.values[layer.match.a]), _name(b.values[layer.match.b])
    return LayerError(*names, display(named), _op(node_b), layer.error, layer.own)


def _in_words(layers: Sequence[LayerError], how: str) -> str:
    largest = max(layers, key=lambda layer: layer.error if math.isfinite(layer.error) else -1.0)
    return f"{len(layers)} tensors compared by {how}: largest error {largest.error:.2g}, of {largest.op} {largest.b!r}"


def display(node: Node | None) -> str:
    """The name of a node; that of its first result where it has none, "" for an input of the model."""
    if node is None:
        return ""
    return node.name or next((r.name for r in node.results if r.name), "")


def _name(value: Value) -> str:
    return value.name or ""


def _op(node: Node | None) -> str:
    return "" if node is None else node.op.name.partition(".")[2]
