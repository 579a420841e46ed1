"""While, Loop and Scan. Their regions are lifted and lowered like the graph around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnxtfl.mappings.control.loop_lowering import (
    Collected,
    as_while,
    called,
    goes_on,
    is_called,
    is_unrolled,
    mask_steps,
    next_round,
    number_of_round,
    number_type,
    unrolled,
)
from onnxtfl.mappings.control.sequence_loops import SequenceOps, loop_over_sequences

from onnxtfl.build.rows import row
from onnxtfl.build.sequences import is_list
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import may_be_one, product
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.inlining import copy_region
from onnxtfl.ir.ops.loops import ScanParts, scan_attributes
from onnxtfl.ir.reshape import as_int64, dim_value, dim_vector, reshape, transposed, with_unit_axis
from onnxtfl.ir.shapes import normalize_axes, static_ints
from onnxtfl.ir.types import DType, TensorType, Type, shape_of, tensor
from onnxtfl.rewriting.regions import bind_captures, condition_value, graph_in, refuse_states
from onnxtfl.rewriting.registry import (
    Form,
    Inlined,
    Steps,
    carried_by,
    decompose,
    decompose_late,
    lift_onnx,
    lift_tfl,
    lower_onnx,
    regions_of,
)

VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)

row(
    ops.While,
    tfl="WHILE",
    tfl_options={"cond": "cond_subgraph_index", "body": "body_subgraph_index"},
    lifts=False,
    when=lambda node: not _resized(node),
)


def _resized(node: Node) -> list[int]:
    """Return the values of a While that grow along their first axis.

    LiteRT and tflite-runtime 2.14 treat sizes 0 and 1 of that axis, before and after an iteration, as equal.
    Source: while.cc, total_elements in Prepare_impl.
    """
    found = []
    for i, (taken, returned) in enumerate(zip(node.attr("body").inputs, node.attr("body").outputs, strict=True)):
        before, after = taken.tensor_type.shape, returned.tensor_type.shape
        if taken is not returned and (before is None or after is None or before[:1] != after[:1]):
            found.append(i)
    return found


@decompose(ops.While, "tfl", when=lambda node: bool(_resized(node)))
def while_with_unit_axes(b: Builder, node: Node) -> list[Value]:
    """Insert a unit axis before values that grow along their first axis."""
    wide = _resized(node)

    def region(old: Graph) -> tuple[Graph, Builder, list[Value]]:
        new = Graph(old.name)
        inside, given = Builder(new), []
        for i, value in enumerate(old.inputs):
            taken = new.add_input(value.tensor_type.with_shape((1, *value.shape)) if i in wide else value.type)
            given.append(reshape(inside, taken, value.shape) if i in wide else taken)
        return new, inside, copy_region(inside, old, given)

    def widened(to: Builder, values: Sequence[Value | None]) -> list[Value]:
        return [with_unit_axis(to, v, 0) if i in wide else v for i, v in enumerate(values) if v is not None]

    cond, _, again = region(node.attr("cond"))
    body, inside, outputs = region(node.attr("body"))
    cond.outputs, body.outputs = again, widened(inside, outputs)
    results = b.many(ops.While, *widened(b, node.operands), cond=cond, body=body)
    return [reshape(b, v, v.shape[1:]) if i in wide else v for i, v in enumerate(results)]


FOREVER = (1 << 31) - 1
"""Trip counts from this value mean that only the condition ends the loop."""
MOST_PREALLOCATED = 1 << 16
"""The most elements of a scan output of a loop that may end before its trip count."""


@regions_of("onnx.Loop")
def loop_regions(node: Node) -> Steps | None:
    """The body's operands: iteration number, condition, loop-carried values, captured values."""
    body, captures = graph_in(node, "body"), node.attributes["captures"]
    if any(map(is_list, _carried(node))):
        carried = [v for v in _carried(node) if v is not None]
        names = SequenceOps("SplitToSequence", "ConcatFromSequence", "SequenceAt", "Concat")
        return loop_over_sequences(node, body, carried, names)
    body.inputs[0].type, body.inputs[1].type = number_type(body.inputs[0].type), _condition_type(node)
    for inside, outside in zip(body.inputs[2:], _carried(node), strict=False):
        if outside is None:
            raise ValueError("a loop-carried value is absent")
        inside.type = outside.type
    if captures:
        bind_captures(body, node.operands[-captures:])
    return None


@carried_by("onnx.Loop")
def loop_carried(node: Node) -> Sequence[tuple[Value, Value, Type | None]]:
    """Return each loop-carried value before and after an iteration."""
    body, count = graph_in(node, "body"), len(_carried(node))
    if len(body.outputs) <= count or len(body.inputs) < count + 2:
        raise ValueError(f"the body has {len(body.inputs)} inputs, {len(body.outputs)} outputs, {count} carried values")
    return list(zip(body.inputs[2 : 2 + count], body.outputs[1 : 1 + count], [None] * count, strict=True))


def _carried(node: Node) -> list[Value | None]:
    return node.operands[2 : len(node.operands) - node.attributes["captures"]]


def _condition_type(node: Node) -> TensorType:
    condition = node.operands[1]
    return tensor("bool") if condition is None else condition.tensor_type


@lift_onnx("Loop", VERSIONS)
def loop_onnx(b: Builder, node: Node) -> Sequence[Value]:
    """Lift Loop to Scan if only the trip count ends it, else to While; both carry the iteration number."""
    body = graph_in(node, "body")
    number, condition = number_of_round(body), body.inputs[1]
    if condition.dtype is not DType.BOOL or condition.rank > 1 or not all(map(may_be_one, condition.shape)):
        raise ValueError(f"the condition of an iteration is {condition.type}")
    count, go_on = node.operands[:2]
    count = None if count is None else b(ops.Reshape, count, [])
    limit = None if count is None else static_ints(count)
    if limit is not None and limit[0] >= FOREVER:
        count = None
    again = body.outputs[0] is condition or condition_value(body.outputs[0])
    if (go_on is None or condition_value(go_on)) and (count is None or (limit is not None and limit[0] > 0)):
        _replace_unread(b, node, body)
    if again and count is None:
        raise UnsupportedError("the condition of this loop is always true, and it has no trip count", code="E-OP-005")
    if not again or count is None:
        return _loop_as_while(b, node, count)
    body.substitute(condition, constant(np.full([1] * condition.rank, True)))
    if go_on is not None and condition_value(go_on) is not True:
        count = b(ops.Select, b(ops.Reshape, go_on, []), count, b.scalar(0, count))
    carried = len(_carried(node)) + 1
    body.inputs = [number, *body.inputs[2:]]
    body.outputs = [Builder(body)(ops.Add, number, np.asarray(1, np.int64)), *body.outputs[1:]]
    collected = len(body.outputs) - carried
    given = (count, b.value(np.asarray(0, np.int64)), *node.operands[2:])
    return b.many(ops.Scan, *given, body=body, **scan_attributes(carried, result_axes=(0,) * collected))[1:]


def _replace_unread(b: Builder, node: Node, body: Graph) -> None:
    """Begin with zeros where the first iteration replaces a value of another rank that no iteration reads.

    Paddle's exporter writes a number of one element for a tensor that is defined inside the loop.
    """
    for i, start in enumerate(_carried(node)):
        inside, found = body.inputs[2 + i], body.outputs[1 + i].type
        if start is None or inside.uses or inside in body.outputs or not isinstance(found, TensorType):
            continue
        if found.rank is None or found.rank == start.rank:
            continue
        try:
            sizes = dim_vector(b, found.shape or (), *node.present_operands)
        except UnsupportedError:  # sizes that only the body knows: the loop's result has an unknown rank
            continue
        node.set_operand(2 + i, b(ops.BroadcastTo, b.scalar(0, found.dtype), sizes))
        inside.type = found


def _loop_as_while(b: Builder, node: Node, count: Value | None) -> list[Value]:
    """Return a While over iteration number, condition, carried values, scan outputs, captures, trip count."""
    body, carried = graph_in(node, "body"), len(_carried(node))
    go_on = node.operands[1] if node.operands[1] is not None else b.value(np.asarray(True))
    captures = body.inputs[2 + carried :]
    collected = [Collected(v) for v in body.outputs[1 + carried :]]
    values = [v for v in node.operands[2:] if v is not None]
    starts = [c.start(b, _room(c, count), values) for c in collected]
    wholes = [body.add_input(c.type(v)) for c, v in zip(collected, starts, strict=True)]
    limit = None if count is None else body.add_input(count.type)
    next_round(body, captures, collected, wholes, limit)
    given = [b.value(np.asarray(0, np.int64)), go_on, *node.operands[2:], *starts, *([] if count is None else [count])]
    rounds, _, *results = b.many(ops.While, *given, cond=goes_on(body, limit), body=body)
    found = results[len(node.operands) - 2 :]
    return [*results[:carried], *(c.cut(b, v, rounds) for v, c in zip(found, collected, strict=False))]


def _room(collected: Collected, count: Value | None) -> Value | None:
    """Return the trip count as int32, if it is known, at least 1 and small enough to allocate the scan outputs."""
    limit, size = static_ints(count), product(collected.output.shape)
    if limit is None or limit[0] < 1 or not isinstance(size, int) or limit[0] * size > MOST_PREALLOCATED:
        return None
    return constant(np.asarray(limit[0], np.int32))


SCAN_VERSIONS = (9, 11, 16, 19, 21, 23, 24, 25)


@regions_of("onnx.Scan")
def scan_regions_onnx(node: Node) -> None:
    """The body's operands: carried values, a slice of each scanned value, captured values."""
    body, captures = graph_in(node, "body"), node.attributes["captures"]
    old = node.op.version == 8
    values = node.operands[1:] if old else node.operands
    scanned = len(values) - captures - int(node.attr("num_scan_inputs", -1))
    if node.attr("num_scan_inputs", 0) < 1 or scanned < 0 or any(v is None for v in values):
        raise ValueError(f"{len(values) - captures} operands, num_scan_inputs is {node.attr('num_scan_inputs')}")
    axes = _int_list(node, "scan_input_axes", len(values) - captures - scanned)
    taken = [v.tensor_type for v in values[: len(values) - captures] if v is not None]
    for i, (inside, type_) in enumerate(zip(body.inputs, taken, strict=False)):
        dropped = [0] if old else []  # the batch axis
        dropped += [1 if old else axes[i - scanned]] if i >= scanned else []
        inside.type = _without(type_, dropped)
    if captures:
        bind_captures(body, values[-captures:])


def _int_list(node: Node, name: str, count: int, stop: int | None = None) -> tuple[int, ...]:
    """Return attribute `name` with `count` entries in [0, stop), by default zeros."""
    entries = tuple(node.attr(name) or (0,) * count)
    if len(entries) != count:
        raise ValueError(f"{name} has {len(entries)} entries, not {count}")
    if stop and not set(entries) <= set(range(stop)):
        raise ValueError(f"{name} has entries outside of [0, {stop})")
    return entries


def _without(type_: TensorType, axes: Sequence[int]) -> TensorType:
    """Return `type_` without `axes`."""
    if type_.shape is None:
        return type_
    dropped = normalize_axes(axes, len(type_.shape))
    return type_.with_shape(tuple(d for i, d in enumerate(type_.shape) if i not in dropped))


@carried_by("onnx.Scan")
def scan_carried(node: Node) -> Sequence[tuple[Value, Value, Type | None]]:
    """Return each carried value before and after an iteration."""
    body, count = graph_in(node, "body"), _scan_states(node)
    if len(body.outputs) < count:
        raise ValueError(f"the body has {len(body.outputs)} outputs for {count} carried values")
    return list(zip(body.inputs[:count], body.outputs[:count], [None] * count, strict=True))


def _scan_states(node: Node) -> int:
    operands = len(node.operands) - int(node.attributes["captures"]) - (node.op.version == 8)
    return operands - int(node.attr("num_scan_inputs"))


@lift_onnx("Scan", SCAN_VERSIONS)
def scan_onnx(b: Builder, node: Node) -> Sequence[Value]:
    """Lift Scan with the axes and directions in its attributes."""
    body, count, scanned = graph_in(node, "body"), _scan_states(node), int(node.attr("num_scan_inputs"))
    collected = len(body.outputs) - count
    return b.many(
        ops.Scan,
        None,
        *node.operands,
        body=body,
        carried=count,
        axes=_int_list(node, "scan_input_axes", scanned),
        reversed=tuple(map(bool, _int_list(node, "scan_input_directions", scanned, 2))),
        result_axes=_int_list(node, "scan_output_axes", collected),
        result_reversed=tuple(map(bool, _int_list(node, "scan_output_directions", collected, 2))),
    )


@lift_onnx("Scan", (8,))
def scan_8(b: Builder, node: Node) -> Sequence[Value]:
    """Lift Scan-8 to a Scan over the batch, whose body is a Scan over the steps of one sequence.

    Steps after the length of a sequence keep the state and collect zeros; a reversed input starts at its last step.
    """
    lengths, *values = node.operands
    body, count, scanned = graph_in(node, "body"), _scan_states(node), int(node.attr("num_scan_inputs"))
    back = tuple(map(bool, _int_list(node, "directions", scanned)))
    given = [v for v in values if v is not None]
    outer = Graph(f"{body.name}/sequence")
    if lengths is not None:
        given[count : count + scanned] = _reversed_sequences(b, given[count : count + scanned], lengths, back)
        back = (False,) * scanned
        given.insert(count + scanned, lengths)
    batched = count + scanned + (lengths is not None)
    for i, value in enumerate(given):
        outer.add_input(_without(value.tensor_type, [0]) if i < batched else value.type)
    inner, inside = Builder(outer), list(outer.inputs)
    if lengths is not None:
        mask_steps(inner, body, inside, count, scanned)
        back = (*back, False)
    collected = len(body.outputs) - count
    steps = {**scan_attributes(count, (0,) * len(back), (0,) * collected), "reversed": back}
    outer.outputs = inner.many(ops.Scan, None, *inside, body=body, **steps)
    flags = scan_attributes(0, (0,) * batched, (0,) * len(outer.outputs))
    return b.many(ops.Scan, None, *given, body=outer, **flags)


def _reversed_sequences(b: Builder, scanned: Sequence[Value], lengths: Value, back: Sequence[bool]) -> list[Value]:
    """Return the scanned values [batch, steps, ...], the first `lengths` steps reversed in those with `back`."""
    reverse = {"time_axis": 1, "batch_axis": 0}
    return [b(ops.ReverseSequence, v, lengths, **reverse) if r else v for v, r in zip(scanned, back, strict=True)]


@decompose(ops.Scan, "tfl")
def scan_as_rounds(b: Builder, node: Node) -> Sequence[Value]:
    """Unroll a Scan with few iterations, else return a While."""
    parts = ScanParts.of(node)
    rounds = parts.rounds
    return unrolled(b, parts, max(rounds, 0)) if isinstance(rounds, int) and is_unrolled(parts) else as_while(b, parts)


@decompose_late(ops.Scan, "tfl", when=is_called)
def scan_as_calls(b: Builder, node: Node) -> Sequence[Value]:
    """Return calls of one subgraph, one per iteration, by If."""
    return called(b, ScanParts.of(node))


@regions_of("tfl.WHILE")
@regions_of("tfl.STABLEHLO_WHILE")
def while_regions_tfl(node: Node) -> Inlined | None:
    """Condition and body have the types of the first iteration, see :func:`while_carried`, and read-only constants."""
    cond, body = (graph_in(node, name) for name in ("cond_subgraph_index", "body_subgraph_index"))
    if node.op.name == "tfl.WHILE":
        _overwrite_as_copied(node, cond, body)
    for region in (cond, body):
        refuse_states(region)
        for i, (inside, outside) in enumerate(zip(region.inputs, node.operands, strict=False)):
            if outside is None or not isinstance(inside.type, TensorType) or not isinstance(outside.type, TensorType):
                continue
            inside.type = inside.type.with_shape(outside.type.shape)
            inside.known = outside.known if _is_kept(body, i) else None
    return None


def _overwrite_as_copied(node: Node, cond: Graph, body: Graph) -> None:
    """Let an output of the body that is a preceding input of it be what the kernel has copied over that input before.

    ::

        body(%a, %b) -> (%sum, %a)      ->      body(%a, %b) -> (%sum, %sum)

    The inputs of the body share the memory of the results, to which its outputs are copied one by one. Those of the
    condition are copied before. Source: LiteRT kernels/while.cc (Eval_static).
    """
    places = {value: i for i, value in enumerate(body.inputs)}
    outputs = list(body.outputs)
    for i, value in enumerate(outputs):
        first = places.get(value, i)
        if first >= i or not isinstance(value.type, TensorType) or outputs[first] is value:
            continue
        if outputs[first].type != value.type or cond.inputs[i].uses or cond.inputs[i] in cond.outputs:
            continue  # sizes change, or the condition reads the value that is not overwritten
        outputs[i] = outputs[first]
        earlier, later = (repr(node.results[n].name or f"value {n}") for n in (first, i))
        assume(f"a loop overwrites {earlier} before it copies it to {later}, as LiteRT's WHILE does")
    body.outputs = outputs


@carried_by("tfl.WHILE")
@carried_by("tfl.STABLEHLO_WHILE")
def while_carried(node: Node) -> Sequence[tuple[Value, Value, Type | None]]:
    """Return each value before and after an iteration; the declared type of the result is valid for all iterations."""
    body = graph_in(node, "body_subgraph_index")
    return list(zip(body.inputs, body.outputs, [r.type for r in node.results], strict=True))


def _is_kept(body: Graph, index: int) -> bool:
    """Whether output `index` is input `index` or a copy of it."""
    if max(len(body.inputs), len(body.outputs)) <= index:
        return False
    taken, value = body.inputs[index], body.outputs[index]
    while value is not taken and (node := value.producer) is not None and node.op.name in ("tfl.RESHAPE", "Reshape"):
        value = node.operand(0)
    return value is taken and taken.type == body.outputs[index].type


@lift_tfl("WHILE", "STABLEHLO_WHILE")
def while_tfl(b: Builder, node: Node) -> Sequence[Value]:
    """Lift While; its body returns read-only values without copies."""
    cond, body = (graph_in(node, name) for name in ("cond_subgraph_index", "body_subgraph_index"))
    body.outputs = [body.inputs[i] if _is_kept(body, i) else v for i, v in enumerate(body.outputs)]
    return b.many(ops.While, *node.operands, cond=cond, body=body)


@decompose(ops.While, "onnx")
def while_as_loop(b: Builder, node: Node) -> Sequence[Value]:
    """Lower While to Loop, whose body evaluates the condition at its end; read-only values are captured."""
    cond, body = node.attr("cond"), node.attr("body")
    kept = [i for i, v in enumerate(body.inputs) if body.outputs[i] is not v]
    captured = [i for i in range(len(body.inputs)) if i not in kept]
    (go_on,) = copy_region(b, cond, node.operands)
    region = Graph(body.name)
    inside = Builder(region)
    region.add_input(tensor("int64"))
    region.add_input(go_on.type)
    inputs = {i: region.add_input(body.inputs[i].type) for i in (*kept, *captured)}
    returned = copy_region(inside, body, [inputs[i] for i in range(len(inputs))])
    region.outputs = [*copy_region(inside, cond, returned), *(returned[i] for i in kept)]
    given = [node.operand(i) for i in (*kept, *captured)]
    finals = dict(zip(kept, b.many(ops.Loop, None, go_on, *given, body=region, carried=len(kept)), strict=True))
    return [finals.get(i, node.operand(i)) for i in range(len(inputs))]


@lower_onnx(ops.Loop)
def loop_lowered_onnx(node: Node, opset: int) -> Form:
    """Lower Loop; inputs of its body after the carried values become captured values."""
    captures = len(node.operands) - 2 - node.attr("carried")
    return Form("Loop", tuple(node.operands), {"body": node.attr("body"), "captures": captures})


@lower_onnx(ops.Scan)
def scan_lowered_onnx(node: Node, opset: int) -> Form | None:
    """Lower Scan with scanned values; inputs of its body after the slices become captured values.

    ONNX Runtime takes carried values only that keep their shape: ShapeInferenceError otherwise.
    """
    parts = ScanParts.of(node)
    if parts.length is not None or not parts.axes or not _keeps_shapes(parts):
        return None
    attributes = {
        "body": parts.body,
        "captures": len(parts.captures),
        "num_scan_inputs": len(parts.axes),
        "scan_input_axes": parts.axes,
        "scan_input_directions": tuple(map(int, parts.reversed)),
        "scan_output_axes": parts.result_axes,
        "scan_output_directions": tuple(map(int, parts.result_reversed)),
    }
    return Form("Scan", parts.values, {k: v for k, v in attributes.items() if v != ()})


def _keeps_shapes(parts: ScanParts) -> bool:
    """Whether the body takes and returns each carried value in the shape of its initial value."""
    states = zip(parts.carried, parts.body.inputs, parts.body.outputs, strict=False)
    return all(shape_of(v.type) == shape_of(taken.type) == shape_of(new.type) for v, taken, new in states)


@decompose(ops.Scan, "onnx")
def scan_as_loop(b: Builder, node: Node) -> Sequence[Value]:
    """Lower Scan to Loop, which gathers the slices at the iteration number."""
    parts = ScanParts.of(node)
    region = Graph(parts.body.name)
    inside = Builder(region)
    number, again = (region.add_input(tensor(dtype)) for dtype in ("int64", "bool"))
    states = [region.add_input(v.type) for v in parts.body.inputs[: parts.count]]
    read = [region.add_input(v.type) for v in (*parts.scanned, *parts.captures)]
    slices = []
    for x, axis, back in zip(read, parts.axes, parts.reversed, strict=False):
        size = reshape(inside, dim_value(inside, x.shape[axis], x), ())
        last = inside(ops.Sub, size, inside.scalar(1, size))
        slices.append(inside(ops.Gather, x, inside(ops.Sub, last, number) if back else number, axis=axis % x.rank))
    region.outputs = [again, *copy_region(inside, parts.body, [*states, *slices, *read[len(slices) :]])]
    length = parts.length
    if length is None:
        length = dim_value(b, parts.rounds, parts.scanned[0])
    count = as_int64(b, reshape(b, length, ()))
    made = b.many(ops.Loop, count, None, *parts.values, body=region, carried=parts.count)
    ordered = [
        _in_place(b, v, axis % v.rank, back)
        for v, axis, back in zip(made[parts.count :], parts.result_axes, parts.result_reversed, strict=True)
    ]
    return [*made[: parts.count], *ordered]


def _in_place(b: Builder, whole: Value, axis: int, back: bool) -> Value:
    """Move the first axis of `whole` to `axis`, reversed if `back`."""
    whole = b(ops.Reverse, whole, dimensions=(0,)) if back else whole
    order = list(range(1, whole.rank))
    order.insert(axis, 0)
    return transposed(b, whole, order)
