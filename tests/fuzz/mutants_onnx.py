"""Changes of ONNX models: any field of any message, the encoding of messages, and the graph."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tests.fuzz import mutants_bytes, mutants_onnx_values
from tests.fuzz.mutations import graphs_of, mutated

Random = random.Random
Other = mutants_bytes.Other
Field = FieldDescriptor
INTEGERS = (
    0, 1, -1, 2, 3, -2, 7, 16, 100, -100, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1,
    -(2**63),
)  # fmt: skip
FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-38, 1e30, -1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "y", "NOTSET", "SAME_UPPER", "SAME_LOWER", "linear", "constant", "sum", "ai.onnx.ml", "../x", "ü\n")
_INTEGER_TYPES = {Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64}
_BITS = {Field.TYPE_INT32: 32, Field.TYPE_UINT32: 32}


def changed_messages(data: bytes, other: Other, chance: Random) -> bytes:
    """The file after a change of one field of one message, or of the encoding of one; bytes where it is damaged."""
    if chance.random() < 0.3:
        return _changed_encoding(data, other, chance)
    model = _parsed(data)
    if model is None:
        return mutants_bytes.changed(data, other, chance)
    places = [(m, f) for m in _messages(model) for f, _ in m.ListFields()]
    if places:
        _change_field(*chance.choice(places), places, chance)
    return bytes(model.SerializePartialToString())


def changed_graph(data: bytes, other: Other, chance: Random) -> bytes:
    """The file after a change of the graph; bytes where it is damaged."""
    model = _parsed(data)
    if model is None or not model.graph.node:
        return mutants_bytes.changed(data, other, chance)
    if chance.random() < 0.35:
        try:
            with np.errstate(all="ignore"):
                return bytes(mutated(model, chance.getrandbits(32)).SerializePartialToString())
        except Exception:  # onnx.helper refuses a value
            return mutants_bytes.changed(data, other, chance)
    try:
        chance.choice(_GRAPH_CHANGES)(model, other, chance)
    except (ValueError, TypeError, KeyError):  # a damaged constant, or a value that does not fit into its field
        return mutants_bytes.changed(data, other, chance)
    return bytes(model.SerializePartialToString())


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        return onnx.load_from_string(data)
    except DecodeError:
        return None


def _messages(message: Message) -> Iterator[Message]:
    """The message and all that it contains."""
    yield message
    for field, value in message.ListFields():
        if field.type == Field.TYPE_MESSAGE:
            for inner in value if _is_repeated(field) else [value]:
                yield from _messages(inner)


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)
    return bool(field.label == Field.LABEL_REPEATED if repeated is None else repeated)


def _change_field(message: Message, field: Any, places: list[tuple[Message, Any]], chance: Random) -> None:
    """Drop the field, copy that of another message of the same type, or change its value."""
    kind = chance.randrange(8)
    if kind == 0:
        message.ClearField(field.name)
    elif kind == 1:
        same = [m for m, f in places if f is field]
        copy = type(message)()
        copy.CopyFrom(chance.choice(same))
        message.ClearField(field.name)
        for other in list(copy.DESCRIPTOR.fields):
            if other.name != field.name:
                copy.ClearField(other.name)
        message.MergeFrom(copy)
    elif kind == 2 and type(message).DESCRIPTOR.fields:
        _add_field(message, chance.choice(list(message.DESCRIPTOR.fields)), chance)
    elif _is_repeated(field):
        _change_list(getattr(message, field.name), field, chance)
    elif field.type != Field.TYPE_MESSAGE:
        setattr(message, field.name, _value(field, chance))


def _add_field(message: Message, field: Any, chance: Random) -> None:
    """Set a field that the message may not have."""
    if field.type == Field.TYPE_MESSAGE:
        inner = getattr(message, field.name)
        (inner.add if _is_repeated(field) else inner.SetInParent)()
    elif _is_repeated(field):
        getattr(message, field.name).append(_value(field, chance))
    else:
        setattr(message, field.name, _value(field, chance))


def _change_list(values: Any, field: Any, chance: Random) -> None:
    """Drop, double, swap or change elements; or repeat one many times."""
    kind, at = chance.randrange(6), chance.randrange(len(values))
    if kind == 0:
        del values[at]
    elif kind == 1:
        values.extend(list(values)[:1000] if chance.random() < 0.5 else [values[at]])
    elif kind == 2:
        values.extend([values[at]] * chance.choice((2, 9, 300)))
    elif kind == 3:
        items = list(values)
        chance.shuffle(items)
        copies = [_copy(item) for item in items]
        del values[:]
        values.extend(copies)
    elif field.type != Field.TYPE_MESSAGE:
        values[at] = _value(field, chance)


def _copy(item: Any) -> Any:
    if not isinstance(item, Message):
        return item
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _value(field: Any, chance: Random) -> Any:
    """A value that the type of the field can have."""
    if field.type == Field.TYPE_ENUM:
        return chance.choice(field.enum_type.values).number
    if field.type in _INTEGER_TYPES:
        value = chance.choice((*INTEGERS, chance.randrange(40)))
        bits = _BITS.get(field.type, 64)
        value %= 1 << bits
        signed = field.type in (Field.TYPE_INT32, Field.TYPE_INT64)
        return value - (1 << bits) if signed and value >> (bits - 1) else value
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return chance.choice(FLOATS)
    text = chance.choice(TEXTS)
    return text if field.type == Field.TYPE_STRING else text.encode()


def _changed_encoding(data: bytes, other: Other, chance: Random) -> bytes:
    """The file after a change of a tag, a length or a varint, or with a field removed, doubled or moved."""
    spans = list(_spans(data, 0, len(data), 0))
    if not spans:
        return mutants_bytes.changed(data, other, chance)
    start, head, stop = chance.choice(spans)
    kind = chance.randrange(5)
    if kind == 0:
        return data[:start] + data[stop:]
    if kind == 1:
        return data[:stop] + data[start:stop] * chance.choice((1, 2, 50)) + data[stop:]
    if kind == 2:
        tag = data[start] ^ chance.choice((1, 2, 3, 5, 8, 16, 64))
        return data[:start] + bytes([tag]) + data[start + 1 :]
    if kind == 3:
        at, _, end = chance.choice(spans)
        return data[:at] + data[start:stop] + data[end:]
    return data[: start + 1] + _varint(chance.choice(INTEGERS)) + data[head:]


def _spans(data: bytes, start: int, stop: int, depth: int) -> Iterator[tuple[int, int, int]]:
    """The fields between two positions, at all depths: where each begins, where its content does, where it ends."""
    at = start
    while at < stop:
        tag, after = _read_varint(data, at, stop)
        wire, head = tag & 7, after
        if wire == 2:
            length, head = _read_varint(data, after, stop)
            end = head + length
        elif wire == 0:
            _, head = _read_varint(data, after, stop)
            end = head
        else:
            end = after + {1: 8, 5: 4}.get(wire, stop)
        if not tag >> 3 or end > stop:
            return
        yield at, head, end
        if wire == 2 and depth < 8 and length > 1:
            yield from _spans(data, head, end, depth + 1)
        at = end


def _read_varint(data: bytes, at: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while at < stop:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return value, at


def _varint(value: int) -> bytes:
    value %= 1 << 64
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def rewire(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Let an operand or an output be any value of the graph, from before or after."""
    graph = chance.choice(list(graphs_of(model.graph)))
    names = [v.name for v in graph.input] + [t.name for t in graph.initializer]
    names += [name for node in graph.node for name in node.output]
    nodes = [node for node in graph.node if node.input]
    if chance.random() < 0.2 and graph.output and names:
        chance.choice(graph.output).name = chance.choice(names)
    elif nodes and names:
        node = chance.choice(nodes)
        node.input[chance.randrange(len(node.input))] = chance.choice(names)


def swap_nodes(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Swap two nodes, or only their ops, or only their attributes."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    a, b = chance.choice(nodes), chance.choice(nodes)
    before = _copy(a)
    kind = chance.randrange(3)
    if kind == 0:
        a.op_type, b.op_type = b.op_type, a.op_type
    elif kind == 1:
        for node, source in ((a, _copy(b)), (b, before)):
            del node.attribute[:]
            node.attribute.extend(source.attribute)
    elif a is not b and a not in [n for g in graphs_of(model.graph) for n in g.node if n is b]:
        held = _copy(b)
        b.CopyFrom(before)
        a.CopyFrom(held)


def repeat_node(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Apply a node once more to its own results, several times."""
    graph = chance.choice(list(graphs_of(model.graph)))
    nodes = [node for node in graph.node if node.input and node.output]
    if not nodes:
        return
    node = chance.choice(nodes)
    last = node.output[0]
    for i in range(chance.choice((1, 2, 10, 40))):
        more = graph.node.add()
        more.CopyFrom(node)
        more.name += f"_{i}"
        more.input[:] = [last if j == 0 or chance.random() < 0.3 else name for j, name in enumerate(node.input)]
        more.output[:] = [f"{name}_{i}" for name in node.output]
        last = more.output[0]
    if graph.output:
        graph.output[0].name = last
        graph.output[0].ClearField("type")


def drop_node(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Remove a node; its readers read its operand."""
    graph = chance.choice([graph for graph in graphs_of(model.graph) if graph.node])
    node = _copy(graph.node[(at := chance.randrange(len(graph.node)))])
    del graph.node[at]
    if node.input and node.output and chance.random() < 0.7:
        for reader in graph.node:
            reader.input[:] = [node.input[0] if name == node.output[0] else name for name in reader.input]
        for output in graph.output:
            if output.name == node.output[0]:
                output.name = node.input[0]


def append_model(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Append the graph of another model, with an input fed by a value of this one."""
    more = _parsed(other())
    if more is not None and more.graph.node:
        _append_model(model, more, chance)


def _append_model(model: onnx.ModelProto, other: onnx.ModelProto, chance: Random) -> None:
    names = [name for node in model.graph.node for name in node.output if name]
    names += [value.name for value in model.graph.input]
    fed = chance.choice(other.graph.input).name if other.graph.input else ""
    source = chance.choice(names) if names else ""
    for graph_ in graphs_of(other.graph):
        for node in graph_.node:
            for values in (node.input, node.output):
                values[:] = [source if name == fed else name and f"b_{name}" for name in values]
    _append(model.graph, other.graph, fed)
    for opset in other.opset_import:
        if opset.domain not in {o.domain for o in model.opset_import}:
            model.opset_import.append(opset)


def _append(graph: onnx.GraphProto, other: onnx.GraphProto, fed: str) -> None:
    graph.node.extend(other.node)
    for mine, values in ((graph.input, other.input), (graph.initializer, other.initializer)):
        for value in values:
            if value.name != fed:
                mine.add().CopyFrom(value)
                mine[-1].name = f"b_{value.name}"
    for value in other.output:
        graph.output.add().CopyFrom(value)
        graph.output[-1].name = f"b_{value.name}"


def move_axis(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Change an integer attribute to an axis or a size near the valid range."""
    found = [a for g in graphs_of(model.graph) for n in g.node for a in n.attribute if a.HasField("i") or a.ints]
    if found:
        attribute = chance.choice(found)
        value = chance.randint(-7, 7)
        if attribute.ints:
            attribute.ints[chance.randrange(len(attribute.ints))] = value
        else:
            attribute.i = value


def change_version(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Change the version of an opset, or the domain of a node."""
    if chance.random() < 0.7 and model.opset_import:
        chance.choice(model.opset_import).version = chance.choice((0, 1, 6, 7, 9, 11, 13, 18, 23, 26, 27, 2**40, -1))
    else:
        chance.choice(model.graph.node).domain = chance.choice(("", "ai.onnx.ml", "com.microsoft", "ai.onnx", "x.y"))


def change_op(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Replace the op of a node by any other."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    node = chance.choice(nodes)
    node.domain, node.op_type = chance.choice(_ops())


def open_sizes(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Let sizes of the inputs be open, 0, or 1, and the outputs have no declared type."""
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            kind = chance.randrange(5)
            if kind < 2:
                dim.dim_param = chance.choice(("n", "m"))
            elif kind == 2:
                dim.dim_value = chance.choice((0, 1))
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")


@cache
def _ops() -> list[tuple[str, str]]:
    domains = ("", "ai.onnx.ml", "com.microsoft")
    return sorted({(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas() if schema.domain in domains})


_GRAPH_CHANGES: tuple[Callable[[onnx.ModelProto, Other, Random], None], ...] = (
    rewire, rewire, swap_nodes, repeat_node, drop_node, append_model, append_model, move_axis, move_axis,
    change_version, change_op, open_sizes, *mutants_onnx_values.CHANGES,
)  # fmt: skip
