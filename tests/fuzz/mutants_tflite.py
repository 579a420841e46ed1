"""Changes of TFLite models: any field of any table, and the graph. Where a file has no tables: its bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import flatbuffers
import numpy as np

from tests.fuzz import mutants_bytes, mutants_tflite_values

Random = random.Random
Other = mutants_bytes.Other
_INTEGERS = (0, 1, -1, 2, 3, 7, 16, 100, -100, 127, 128, 255, 65536, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-38, 1e30, float("inf"), float("nan"))
_TRIES = 4
"""Changes tried: some values do not fit into their fields."""


def changed_tables(data: bytes, other: Other, chance: Random) -> bytes:
    """The file after a change of one field of one table."""

    def change(model: Any, _: Any) -> None:
        places = [(table, name) for table in _tables(model) for name in vars(table)]
        set_places = [(table, name) for table, name in places if getattr(table, name) is not None]
        _change_field(*chance.choice(places if chance.random() < 0.1 else set_places), set_places, chance)

    return _changed(data, other, chance, change)


def changed_graph(data: bytes, other: Other, chance: Random) -> bytes:
    """The file after a change of the graph."""
    return _changed(data, other, chance, lambda model, b: chance.choice(_GRAPH_CHANGES)(model, b, chance))


def _changed(data: bytes, other: Other, chance: Random, change: Callable[[Any, Any], None]) -> bytes:
    for _ in range(_TRIES):
        try:
            model = _unpacked(data)
            change(model, other)
            return _packed(model)
        except Exception:  # a damaged file, or a value that does not fit into its field
            continue
    return mutants_bytes.changed(data, other, chance)


def _schema() -> Any:
    from ai_edge_litert import schema_py_generated

    return schema_py_generated


def _unpacked(data: bytes) -> Any:
    schema = _schema()
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))


def _packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _tables(table: Any) -> Iterator[Any]:
    """The table and all that it refers to."""
    yield table
    for value in vars(table).values():
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "Pack"):
                yield from _tables(inner)


def _change_field(table: Any, name: str, places: list[tuple[Any, str]], chance: Random) -> None:
    """Drop the field, take that of another table, or change its value."""
    value, kind = getattr(table, name), chance.randrange(8)
    if kind == 0 and not isinstance(value, int | float):
        setattr(table, name, None)
    elif kind == 1:
        same = [getattr(t, n) for t, n in places if n == name or type(getattr(t, n)) is type(value)]
        setattr(table, name, chance.choice(same or [value]))
    elif isinstance(value, bool):
        setattr(table, name, not value)
    elif isinstance(value, int):
        setattr(table, name, chance.choice((*_INTEGERS, value + 1, value - 1, chance.randrange(220))))
    elif isinstance(value, float):
        setattr(table, name, chance.choice(_FLOATS))
    elif isinstance(value, bytes):
        setattr(table, name, chance.choice((b"", b"x", value * 2, b"\xff\xfe", value[:-1])))
    elif isinstance(value, list | np.ndarray):
        setattr(table, name, _changed_list(list(value), chance))


def _changed_list(values: list[Any], chance: Random) -> list[Any]:
    """The list with an element dropped, doubled, moved or changed, or repeated many times."""
    if not values:
        return [chance.choice(_INTEGERS)]
    kind, at = chance.randrange(6), chance.randrange(len(values))
    if kind == 0:
        del values[at]
    elif kind == 1:
        values += [values[at]] * chance.choice((1, 2, 9, 300))
    elif kind == 2:
        chance.shuffle(values)
    elif isinstance(values[at], int | np.integer):
        values[at] = chance.choice((*_INTEGERS, chance.randint(-3, 9)))
    elif isinstance(values[at], float | np.floating):
        values[at] = chance.choice(_FLOATS)
    else:
        values[at] = chance.choice(values)
    return values


def _graph(model: Any, chance: Random) -> Any:
    return chance.choice([graph for graph in model.subgraphs if graph.operators])


def rewire(model: Any, other: Other, chance: Random) -> None:
    """Let an operand, a result or an output be any tensor."""
    graph = _graph(model, chance)
    node = chance.choice(graph.operators)
    owner, name = chance.choice(((node, "inputs"), (node, "inputs"), (node, "outputs"), (graph, "outputs")))
    values = [int(i) for i in getattr(owner, name)]
    values[chance.randrange(len(values))] = chance.choice((-1, *range(len(graph.tensors))))
    setattr(owner, name, values)


def swap_nodes(model: Any, other: Other, chance: Random) -> None:
    """Swap two nodes, or only their ops, or only their options."""
    nodes = _graph(model, chance).operators
    a, b = chance.choice(nodes), chance.choice(nodes)
    kinds = (("opcodeIndex",), ("builtinOptions", "builtinOptionsType"), ("inputs", "outputs"))
    for name in chance.choice(kinds):
        first, second = getattr(a, name), getattr(b, name)
        setattr(a, name, second)
        setattr(b, name, first)


def change_op(model: Any, other: Other, chance: Random) -> None:
    """Replace an op by any other, or its version; with its old options, those of the new op, or none."""
    code = chance.choice(model.operatorCodes)
    if chance.random() < 0.2:
        code.version = chance.choice((0, 1, 2, 3, 5, 9, 100, -1))
        return
    number = chance.choice(_ops())
    code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
    if chance.random() < 0.5:
        options = chance.choice(_options())
        for node in (n for g in model.subgraphs for n in g.operators or []):
            if model.operatorCodes[node.opcodeIndex] is code:
                node.builtinOptionsType, node.builtinOptions = options[0], options[1]()


def change_tensor(model: Any, other: Other, chance: Random) -> None:
    """Change the type, the shape, the signature, the buffer or the quantization of a tensor."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or []]
    tensor, source = chance.choice(tensors), chance.choice(tensors)
    kind = chance.randrange(6)
    if kind == 0:
        tensor.type = chance.randrange(20)
    elif kind == 1:
        shape = [int(size) for size in (tensor.shape if tensor.shape is not None else ())]
        tensor.shape = _changed_list(shape, chance) if chance.random() < 0.6 else source.shape
    elif kind == 2:
        tensor.shapeSignature = _changed_list(
            [int(size) for size in (tensor.shape if any(tensor.shape) else [])], chance
        )
    elif kind == 3:
        tensor.buffer = chance.randrange(len(model.buffers))
    elif kind == 4:
        tensor.quantization = source.quantization
    else:
        tensor.type, tensor.quantization = source.type, source.quantization


def quantize(model: Any, other: Other, chance: Random) -> None:
    """Let a tensor have other scales and zero points."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or []]
    quantization = _schema().QuantizationParametersT()
    count = chance.choice((0, 1, 1, 1, 2, 3, 4, 8))
    quantization.scale = [chance.choice((0.5, 0.1, *_FLOATS)) for _ in range(count)]
    quantization.zeroPoint = [chance.choice((0, 0, 0, 1, -128, 300)) for _ in range(chance.choice((count, 0, 1)))]
    quantization.quantizedDimension = chance.choice((0, 0, 1, 3, -1, 9))
    chance.choice(tensors).quantization = quantization


def repeat_node(model: Any, other: Other, chance: Random) -> None:
    """Apply a node once more to its own results, several times."""
    import copy

    graph = _graph(model, chance)
    node = chance.choice(graph.operators)
    last = int(node.outputs[0])
    for _ in range(chance.choice((1, 2, 10, 40))):
        more = copy.copy(node)
        more.inputs = [last if i == 0 or chance.random() < 0.3 else int(v) for i, v in enumerate(node.inputs)]
        more.outputs = []
        for output in node.outputs:
            graph.tensors.append(copy.copy(graph.tensors[int(output)]))
            more.outputs.append(len(graph.tensors) - 1)
        last = more.outputs[0]
        graph.operators.append(more)
    graph.outputs = [last, *(int(i) for i in graph.outputs)][:4]


def drop_node(model: Any, other: Other, chance: Random) -> None:
    """Remove a node."""
    nodes = _graph(model, chance).operators
    del nodes[chance.randrange(len(nodes))]


def append_model(model: Any, other: Other, chance: Random) -> None:
    """Append the graph of another model, with an input that is a tensor of this one."""
    second = _unpacked(other())
    graph, more = model.subgraphs[0], second.subgraphs[0]
    codes, buffers, tensors = len(model.operatorCodes), len(model.buffers), len(graph.tensors)
    fed, source = int(more.inputs[0]) if len(more.inputs) else None, chance.randrange(tensors)
    model.operatorCodes += second.operatorCodes
    model.buffers += second.buffers
    for tensor in more.tensors:
        tensor.buffer += buffers
    for node in more.operators:
        node.opcodeIndex += codes
        node.inputs = [source if i == fed else int(i) + tensors * (i >= 0) for i in node.inputs]
        node.outputs = [int(i) + tensors for i in node.outputs]
    graph.tensors += more.tensors
    graph.operators += more.operators
    graph.outputs = [*map(int, graph.outputs), *(int(i) + tensors for i in more.outputs)]
    graph.inputs = [*map(int, graph.inputs), *(int(i) + tensors for i in more.inputs if i != fed)]


def open_sizes(model: Any, other: Other, chance: Random) -> None:
    """Let sizes of the inputs be open, 0 or 1."""
    graph = model.subgraphs[0]
    for index in graph.inputs:
        tensor = graph.tensors[int(index)]
        shape = [int(size) for size in (tensor.shape if tensor.shape is not None else ())]
        tensor.shapeSignature = [chance.choice((size, -1)) for size in shape]
        tensor.shape = [1 if s < 0 else chance.choice((s, s, s, 0)) for s in tensor.shapeSignature]


@cache
def _ops() -> list[int]:
    return sorted(v for k, v in vars(_schema().BuiltinOperator).items() if not k.startswith("_"))


@cache
def _options() -> list[tuple[int, Any]]:
    schema = _schema()
    found = {k: v for k, v in vars(schema.BuiltinOptions).items() if not k.startswith("_")}
    return [(v, getattr(schema, f"{k}T")) for k, v in sorted(found.items()) if hasattr(schema, f"{k}T")]


_GRAPH_CHANGES: tuple[Callable[[Any, Other, Random], None], ...] = (
    rewire, rewire, swap_nodes, change_op, change_tensor, change_tensor, change_tensor, quantize, repeat_node,
    drop_node, append_model, open_sizes, *mutants_tflite_values.CHANGES,
)  # fmt: skip
