"""Recurrent layers unrolled in blocks: a Scan over blocks of steps, and the remaining steps.

::

    %h, %y = Scan(%zeros, Reshape(%x, [T / k, k, ...])) {body = graph (%h, %p) -> (%n, %o) { k steps of a layer }}

    ->     %y, %h = Rnn(%x, %W, %R, %b)

    %y, %h = Rnn(%x, %W, %R, %b)
    %z, %k = Rnn(%v, %W, %R, %b, _, %h)                ->     %s, %k = Rnn(Concatenate(%x, %v), %W, %R, %b)
    %s = Concatenate(%y, %z)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.matching import made_by, without_reshapes
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.loops import ScanParts
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.ir.reshape import reshape
from onnxtfl.ir.shapes import normalize_axis
from onnxtfl.passes.recognize.recurrence.chains import chains_of
from onnxtfl.passes.recognize.recurrence.cleanup import LAYERS, is_zero, remade
from onnxtfl.passes.recognize.recurrence.polynomials import UnfitError
from onnxtfl.passes.recognize.recurrence.reroll import Rolled, rerolled
from onnxtfl.rewriting.patterns import Patterns, erase_dead

BLOCKS = Patterns()


@BLOCKS.on(ops.Scan)
def scan_of_blocks(b: Builder, node: Node) -> list[Value] | None:
    """Replace a Scan over blocks of steps by the layer."""
    parts = ScanParts.of(node)
    if parts.count not in (1, 2) or parts.length is not None or not _has_blocks(parts):
        return None
    if any(touches_quantized(inner) for inner in parts.body.nodes):
        return None
    chains = (chain for inner in parts.body.nodes for chain in chains_of(inner))
    scans = (rolled for chain in chains for rolled in rerolled(parts.body, chain))
    return next((results for rolled in scans if (results := _flat(b, node, parts, rolled)) is not None), None)


def _has_blocks(parts: ScanParts) -> bool:
    """Whether there is one scanned value, along axis 0, with blocks of static shape."""
    static = all(v.is_static and v.dtype.is_float for v in parts.values)
    if not static or len(parts.axes) != 1 or any((*parts.axes, *parts.result_axes)) or parts.scanned[0].rank < 3:
        return False
    return all(back == parts.reversed[0] for back in parts.result_reversed)


def _flat(b: Builder, node: Node, parts: ScanParts, inner: Rolled) -> list[Value] | None:
    """Return the results of the layer over all blocks, if the body of the Scan is the Scan `inner`; else None."""
    x, taken, steps = parts.scanned[0], parts.body.inputs, inner.steps
    starts = [None if v is None else without_reshapes(v) for v in inner.initial]
    if len(starts) != parts.count or set(starts) != set(taken[: parts.count]) or inner.layer.lengths is not None:
        return None
    whole = steps.count == x.shape[1] and steps.time_first and steps.reverse == parts.reversed[0]
    if not whole or without_reshapes(steps.sequence) is not taken[parts.count]:
        return None
    order = [taken.index(v) for v in starts if v is not None]
    outputs = [without_reshapes(v) for v in parts.body.outputs]
    finals = {without_reshapes(v): order[role] for v, role in inner.finals.items()}
    collected = [without_reshapes(node.result) for node, time_first in inner.collecting.items() if time_first]
    if [finals.get(v) for v in outputs[: parts.count]] != list(range(parts.count)):
        return None
    if any(v not in collected for v in outputs[parts.count :]) or not all(v.is_constant for v in inner.layer.values):
        return None
    count = x.shape[0] * x.shape[1]
    rows = reshape(b, x, (count, steps.batch, product(x.shape) // (count * steps.batch)))
    initial = [None if is_zero(parts.carried[i]) else parts.carried[i] for i in order]
    try:
        output, *states = inner.layer.write(b, replace(steps, sequence=rows, count=count), initial)
    except UnfitError:
        return None
    results = [*(states[order.index(i)] for i in range(parts.count)), *[output] * len(parts.result_axes)]
    return [reshape(b, made, v.shape) for made, v in zip(results, node.results, strict=True)]


def join_parts(graph: Graph) -> bool:
    """Join layers that continue each other and whose outputs are concatenated; return whether there were any."""
    changed = False
    for node in [n for n in graph.nodes if n.op is ops.Concatenate and len(n.operands) == 2]:
        if normalize_axis(node.attr("axis"), node.result.rank) == 0:
            changed |= _joined(graph, node)
    return changed


def _joined(graph: Graph, node: Node) -> bool:
    outputs = [without_reshapes(v) for v in node.present_operands]
    early, late = (made_by(v, *LAYERS) for v in outputs)
    if early is None or late is None or outputs != [early.results[0], late.results[0]]:
        return False
    first, second = (late, early) if early.attr("reverse") else (early, late)
    if not _continues(first, second) or not _is_all(graph, outputs, node):
        return False
    if not _is_all(graph, first.results[1:], second):
        return False
    b = Builder(graph, second, maker="recurrent layers")
    given = ops.operands_of(first)
    given["input"] = b(ops.Concatenate, early.operand(0), late.operand(0), axis=0)
    output, *states = remade(b, first, given)
    for made in b.created:
        made.add_history(first, second)
    for old, new in zip(second.results[1:], states, strict=True):
        graph.substitute(old, new)
    graph.replace(node, [reshape(Builder(graph, node), output, node.result.shape)])
    erase_dead(graph, [second, first])
    return True


def _continues(first: Node, second: Node) -> bool:
    """Whether `second` is the same layer as `first`, starting from its last states."""
    if first is second or first.op is not second.op or attributes_of(first) != attributes_of(second):
        return False
    if touches_quantized(first) or touches_quantized(second):
        return False
    lhs, rhs = ops.operands_of(first), ops.operands_of(second)
    states = ops.states_of(second)
    if any(v is None or without_reshapes(v) is not r for v, r in zip(states.values(), first.results[1:], strict=True)):
        return False
    if lhs["lengths"] is not None or rhs["lengths"] is not None:
        return False
    parts = [first.operand(0), second.operand(0)]
    if not all(v.is_static for v in parts) or parts[0].shape[1:] != parts[1].shape[1:]:
        return False
    return all(_same(v, rhs[name]) for name, v in lhs.items() if name not in ("input", *states))


def _same(lhs: Value | None, rhs: Value | None) -> bool:
    """Whether both are the same value or equal constants."""
    if lhs is rhs:
        return True
    if lhs is None or rhs is None or lhs.data is None or rhs.data is None or lhs.type != rhs.type:
        return False
    return lhs.data.key == rhs.data.key or np.array_equal(lhs.numpy(), rhs.numpy())


def _is_all(graph: Graph, values: Sequence[Value], user: Node) -> bool:
    """Whether `user` is the only user of `values`, reshaped or not."""
    work = list(values)
    while work:
        value = work.pop()
        if graph.is_output(value):
            return False
        for node in value.users():
            if node.op in (ops.Reshape, ops.Copy):
                work.extend(node.results)
            elif node is not user:
                return False
    return True
