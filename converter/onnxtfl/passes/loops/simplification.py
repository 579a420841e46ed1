"""Loop simplification: a Scan or While carries and captures only the values that its iterations use.

::

    Scan(carried: x, y)  with y' = y           ->  Scan(carried: x; capture: y), whose final y is y
    Scan(captures: c, x, x, unused)            ->  Scan(captures: x), whose body contains the constant c
    Scan(...) with an unused result            ->  without the values that only this result needs
    Scan of one iteration                      ->  its body
    While(x, y) with y' = y, y constant        ->  While(x), whose regions contain the constant
    While(x, y) with unused y'                 ->  While(x)
    While whose condition is initially false   ->  its operands
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dependencies import needed_inputs, needed_values
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.interpret import is_small, run
from onnxtfl.ir.ops.loops import ScanParts
from onnxtfl.ir.reshape import dim_value, reshape, with_unit_axis
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.rewriting.patterns import Patterns, erase_dead

LOOP_SIMPLIFICATION = Patterns()
SMALL = 1 << 10
"""The most elements of a constant that is evaluated for a condition."""


class _Scan:
    """A Scan that is being rewritten: its operands by role, and its results."""

    def __init__(self, node: Node) -> None:
        self.node, self.parts = node, ScanParts.of(node)
        self.body = self.parts.body
        self.states = list(range(self.parts.count))
        self.slices = list(range(len(self.parts.axes)))
        self.captures = [*self.parts.captures]
        self.inside = self.body.inputs[self.parts.count + len(self.slices) :]
        self.collected = list(range(len(self.parts.result_axes)))
        self.length = self.parts.length

    def made(self, b: Builder, finals: dict[int, Value] | None = None) -> list[Value]:
        """Return the Scan of the remaining values; `finals`: results that are known without it."""
        parts, body, count = self.parts, self.body, self.parts.count
        body.inputs = [*(body.inputs[i] for i in (*self.states, *(count + i for i in self.slices))), *self.inside]
        body.outputs = [body.outputs[i] for i in (*self.states, *(count + i for i in self.collected))]
        erase_dead(body, body.nodes)
        given = [*(parts.values[i] for i in (*self.states, *(count + i for i in self.slices))), *self.captures]
        chosen = {
            "axes": [parts.axes[i] for i in self.slices],
            "reversed": [parts.reversed[i] for i in self.slices],
            "result_axes": [parts.result_axes[i] for i in self.collected],
            "result_reversed": [parts.result_reversed[i] for i in self.collected],
        }
        attributes = {name: tuple(values) for name, values in chosen.items()}
        results = b.many(ops.Scan, self.length, *given, body=body, carried=len(self.states), **attributes)
        kept = dict(zip((*self.states, *(count + i for i in self.collected)), results, strict=True))
        kept |= finals or {}
        return [kept[i] if i in kept else Value(r.type) for i, r in enumerate(self.node.results)]


@LOOP_SIMPLIFICATION.on(ops.Scan, quantized=True)
def invariant_states(b: Builder, node: Node) -> Sequence[Value] | None:
    """Capture carried values that no iteration changes."""
    scan = _Scan(node)
    body, carried = scan.body, scan.parts.carried
    same = [i for i in scan.states if body.outputs[i] is body.inputs[i]]
    if not same:
        return None
    scan.states = [i for i in scan.states if i not in same]
    scan.captures += [carried[i] for i in same]
    scan.inside += [body.inputs[i] for i in same]
    return scan.made(b, {i: carried[i] for i in same})


@LOOP_SIMPLIFICATION.on(ops.Scan, quantized=True)
def captured_values(b: Builder, node: Node) -> Sequence[Value] | None:
    """Copy captured constants into the body; capture each used value once."""
    scan = _Scan(node)
    kept = _needed_reads(scan.captures, [scan.inside], [scan.body])
    if len(kept) == len(scan.captures):
        return None
    scan.captures, scan.inside = [scan.captures[i] for i in kept], [scan.inside[i] for i in kept]
    return scan.made(b)


def _needed_reads(values: Sequence[Value], inside: Sequence[Sequence[Value]], regions: Sequence[Graph]) -> list[int]:
    """Return the indices of `values` that are not constant, not duplicates, and used in a region.

    The inputs `inside` regions for the other values are replaced.
    """
    first: dict[Value, int] = {}
    for i, value in enumerate(values):
        place = first.setdefault(value, i)
        for region, inputs in zip(regions, inside, strict=True):
            if value.is_constant or place != i:
                region.substitute(inputs[i], value if value.is_constant else inputs[place], retyped=True)
    used = [any(_is_used(r, inputs[i]) for r, inputs in zip(regions, inside, strict=True)) for i in range(len(values))]
    return [i for i, v in enumerate(values) if not v.is_constant and first[v] == i and used[i]]


def _is_used(region: Graph, value: Value) -> bool:
    return bool(value.uses) or value in region.outputs


@LOOP_SIMPLIFICATION.on(ops.Scan, quantized=True)
def unused_results(b: Builder, node: Node) -> Sequence[Value] | None:
    """Remove carried values and scan outputs that no used result depends on."""
    scan = _Scan(node)
    count, body = scan.parts.count, scan.body
    used = _used(node)
    scan.collected = [i for i in scan.collected if count + i in used]
    live = _live(body, [body.outputs[i] for i in used], range(count))
    scan.states = [i for i in scan.states if i in live or i in used]
    if len(scan.states) + len(scan.collected) == len(node.results) or not used:
        return None
    return scan.made(b)


def _used(node: Node) -> list[int]:
    outputs = node.graph.output_set() if node.graph is not None else set()
    return [i for i, result in enumerate(node.results) if result.uses or result in outputs]


def _live(body: Graph, roots: Sequence[Value], carried: Sequence[int]) -> list[int]:
    """Return the `carried` values (indices of input and output) that `roots` of `body` depend on."""
    impure = [v for node in body.nodes if not node.is_pure for v in node.operands]
    needed = needed_values([*roots, *impure], {body.inputs[i]: body.outputs[i] for i in carried})
    return [i for i in carried if body.inputs[i] in needed]


@LOOP_SIMPLIFICATION.on(ops.Scan, quantized=True)
def unused_slices(b: Builder, node: Node) -> Sequence[Value] | None:
    """Remove unused scanned values, and a length that equals the size of scanned axes."""
    scan = _Scan(node)
    parts, body = scan.parts, scan.body
    sizes = [v.shape[normalize_axis(a, v.rank)] for v, a in zip(parts.scanned, parts.axes, strict=True)]
    if scan.length is not None and sizes and all(d == parts.rounds for d in sizes):
        scan.length = None
    scan.slices = [i for i in scan.slices if _is_used(body, body.inputs[parts.count + i])]
    if len(scan.slices) == len(sizes) and scan.length is parts.length:
        return None
    if not scan.slices and scan.length is None:
        length = dim_value(b, parts.rounds, *parts.scanned)
        scan.length = reshape(b, length, ())
    return scan.made(b)


@LOOP_SIMPLIFICATION.on(ops.Scan, quantized=True)
def one_round(b: Builder, node: Node) -> Sequence[Value] | None:
    """Replace a Scan of one iteration by its body."""
    parts = ScanParts.of(node)
    if parts.rounds != 1:
        return None
    slices = []
    for x, axis, back in zip(parts.scanned, parts.axes, parts.reversed, strict=True):
        place = np.asarray(-1 if back and x.shape[axis] != 1 else 0)
        if place < 0 or x.rank == 0:
            return None
        slices.append(b(ops.Gather, x, place, axis=normalize_axis(axis, x.rank)))
    outputs = copy_region(b, parts.body, [*parts.carried, *slices, *parts.captures])
    elements = zip(outputs[parts.count :], parts.result_axes, strict=True)
    return [*outputs[: parts.count], *(with_unit_axis(b, e, normalize_axis(a, e.rank + 1)) for e, a in elements)]


@LOOP_SIMPLIFICATION.on(ops.While, quantized=True)
def while_reads(b: Builder, node: Node) -> Sequence[Value] | None:
    """Copy constants that iterations only read into the regions; the result of a read-only value is its operand."""
    regions = [node.attr("cond"), node.attr("body")]
    body = regions[1]
    values = node.present_operands
    same = [i for i in range(len(values)) if body.outputs[i] is body.inputs[i]]
    for i in same:  # a value that is only returned is unused
        body.outputs[i] = values[i]
    reads = [values[i] for i in same]
    needed = [same[k] for k in _needed_reads(reads, [[r.inputs[i] for i in same] for r in regions], regions)]
    for i in needed:
        body.outputs[i] = body.inputs[i]
    if len(needed) == len(same) and not set(same).intersection(_used(node)):
        return None
    kept = [i for i in range(len(values)) if i not in same or i in needed]
    return _kept_values(b, node, kept, {i: values[i] for i in same})


@LOOP_SIMPLIFICATION.on(ops.While, quantized=True)
def while_needs(b: Builder, node: Node) -> Sequence[Value] | None:
    """Remove carried values that neither the condition nor a used result depends on."""
    cond, body = node.attr("cond"), node.attr("body")
    roots = {*_used(node), *needed_inputs(cond, cond.outputs)}
    kept = sorted({*_live(body, [body.outputs[i] for i in roots], range(len(node.operands))), *roots})
    return None if len(kept) == len(node.operands) else _kept_values(b, node, kept, {})


def _kept_values(b: Builder, node: Node, kept: Sequence[int], known: dict[int, Value]) -> list[Value]:
    """Return the results of a While over the values `kept` (indices); `known`: results that need no While."""
    for name in ("cond", "body"):
        region = node.attr(name)
        region.inputs = [region.inputs[i] for i in kept]
    body = node.attr("body")
    body.outputs = [body.outputs[i] for i in kept]
    erase_dead(body, body.nodes)
    made = b.many(ops.While, *(node.operand(i) for i in kept), **node.attributes)
    results = dict(zip(kept, made, strict=True)) | known
    return [results[i] if i in results else Value(r.type) for i, r in enumerate(node.results)]


@LOOP_SIMPLIFICATION.on(ops.While, quantized=True)
def no_round(b: Builder, node: Node) -> Sequence[Value] | None:
    """Replace a zero-trip While, whose condition is initially false, by its operands."""
    cond: Graph = node.attr("cond")
    read, given = needed_inputs(cond, cond.outputs), []
    for i, value in enumerate(node.operands):
        known = value is not None and value.data is not None and value.data.size <= SMALL
        if i in read and not known:
            return None
        given.append(value.stored() if known and value is not None else np.zeros(0))
    if any(n.regions or not n.is_pure or not is_small(n, SMALL) for n in cond.nodes):
        return None
    try:
        goes_on = run(cond, given)[0]
    except NotImplementedError:
        return None
    return None if goes_on.size != 1 or goes_on.any() else node.present_operands
