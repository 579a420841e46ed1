"""Changes of the values of ONNX models: constants become computed, huge or inputs, values quantized, bodies linked
otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.fuzz.mutants_bytes import Other
from tests.fuzz.mutations import graphs_of

Random = random.Random
_SIZES = (0, 1, 2, 3, 7, 255, 256, 65536, 1 << 20, 2**31 - 1, 2**31, 2**40, 2**62)
_SCALES = (0.5, 0.5, 0.1, 1.0, 0.0, -1.0, 1e-38, 1e30, float("inf"), float("nan"))
_STORED = (TensorProto.INT8, TensorProto.UINT8, TensorProto.INT16, TensorProto.UINT16, TensorProto.INT32)
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)


def exchange_operands(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Exchange an operand of a node and one of another."""
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node if node.input]
    if nodes:
        (a, i), (b, j) = ((n, chance.randrange(len(n.input))) for n in (chance.choice(nodes), chance.choice(nodes)))
        a.input[i], b.input[j] = b.input[j], a.input[i]


def compute_constant(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Let a constant be computed, with any number of elements."""
    constant = _taken(model.graph, chance)
    if constant is None:
        return
    rank = len(constant.dims)
    sizes = list(constant.dims) if chance.random() < 0.3 else [chance.choice(_SIZES) for _ in range(rank or 1)]
    shape = numpy_helper.from_array(np.asarray(sizes, np.int64), f"{constant.name}_sizes")
    dtype = constant.data_type if constant.data_type not in (0, TensorProto.STRING) else TensorProto.FLOAT
    value = helper.make_tensor("v", dtype, [1], [chance.choice((0, 1, 2, 3))])
    model.graph.initializer.append(shape)
    node = helper.make_node("ConstantOfShape", [shape.name], [constant.name], value=value)
    model.graph.node.insert(0, node)


def constant_as_input(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Let a constant be known at run time only."""
    constant = _taken(model.graph, chance)
    if constant is not None:
        kept = [chance.choice((d, d, None, f"d{i}")) for i, d in enumerate(constant.dims)]
        shape = None if chance.random() < 0.1 else kept
        given = [value for value in model.graph.input if value.name == constant.name]
        if not given:
            model.graph.input.append(helper.make_tensor_value_info(constant.name, constant.data_type, shape))


def input_as_constant(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Let an input be a constant."""
    graph = model.graph
    if not graph.input:
        return
    at = chance.randrange(len(graph.input))
    type_ = graph.input[at].type.tensor_type
    shape = [d.dim_value or chance.choice((0, 1, 2)) for d in type_.shape.dim]
    if type_.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING) and 0 <= np.prod(shape, dtype=float) < 4096:
        numbers = [chance.choice((0, 1, 2, 3)) for _ in range(int(np.prod(shape)))]
        graph.initializer.append(helper.make_tensor(graph.input[at].name, type_.elem_type, shape, numbers))
        del graph.input[at]


def quantize(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Quantize an operand of a node, with any scales and zero points, and dequantize it again."""
    graph = model.graph
    places = [at for at, node in enumerate(graph.node) if node.input]
    if not places:
        return
    node = graph.node[(at := chance.choice(places))]
    which = chance.randrange(len(node.input))
    name, count = f"q{len(graph.node)}", chance.choice((None, None, 1, 2, 3))
    sizes = [] if count is None else [count]
    scale = helper.make_tensor(
        f"{name}_s", TensorProto.FLOAT, sizes, [chance.choice(_SCALES) for _ in range(count or 1)]
    )
    zeros = [chance.choice((0, 0, 1, 100)) for _ in range(count or 1)]
    zero = helper.make_tensor(f"{name}_z", chance.choice(_STORED), sizes, zeros)
    graph.initializer.extend([scale, zero])
    axis = {} if count is None else {"axis": chance.choice((0, 1, 2, -1))}
    stored = helper.make_node("QuantizeLinear", [node.input[which], scale.name, zero.name], [f"{name}_q"], **axis)
    real = helper.make_node("DequantizeLinear", [f"{name}_q", scale.name, zero.name], [f"{name}_r"], **axis)
    node.input[which] = f"{name}_r"
    for made in (real, stored):
        graph.node.insert(at, made)


def change_links(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Change the inputs and outputs of a body, or exchange two bodies."""
    found = [a for g in graphs_of(model.graph) for n in g.node for a in n.attribute if a.type == AttributeProto.GRAPH]
    if not found:
        exchange_operands(model, other, chance)
        return
    body, second = chance.choice(found).g, chance.choice(found).g
    kind, values = chance.randrange(5), chance.choice((body.input, body.output))
    if kind == 0 and body is not second:
        copy = onnx.GraphProto()
        copy.CopyFrom(second)
        body.CopyFrom(copy)
    elif kind == 1 and values:
        del values[chance.randrange(len(values))]
    elif kind == 2 and values:
        values.append(values[chance.randrange(len(values))])
    elif kind == 3 and values:
        _shuffle(values, chance)
    elif body.output:
        names = [v.name for v in (*body.input, *model.graph.input)] + [o for n in model.graph.node for o in n.output]
        chance.choice(body.output).name = chance.choice(names or [""])


def extreme_constant(model: onnx.ModelProto, other: Other, chance: Random) -> None:
    """Set an element of an integer constant, a size or an axis, to an extreme value, or let it have more elements."""
    found = [t for g in graphs_of(model.graph) for t in g.initializer if t.data_type in _INTEGERS]
    if not found:
        exchange_operands(model, other, chance)
        return
    tensor = chance.choice(found)
    array = np.array(numpy_helper.to_array(tensor)).reshape(-1)
    limit = np.iinfo(array.dtype).max
    number = min(chance.choice((*_SIZES, 1 << 10, 1 << 15, 1 << 24, 1 << 31)), limit)
    if chance.random() < 0.3 or not array.size:
        array = np.full(chance.choice((1, 2, 5, 33, 300, 5000)), min(number, 9), array.dtype)
    else:
        array[chance.randrange(array.size)] = number if chance.random() < 0.8 else -number
        array = array.reshape(tuple(tensor.dims))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _shuffle(values: Sequence[onnx.ValueInfoProto], chance: Random) -> None:
    copies = []
    for value in values:
        copies.append(onnx.ValueInfoProto())
        copies[-1].CopyFrom(value)
    chance.shuffle(copies)
    for value, copy in zip(values, copies, strict=True):
        value.CopyFrom(copy)


def _taken(graph: onnx.GraphProto, chance: Random) -> TensorProto | None:
    """Remove a constant of the graph and return it."""
    if not graph.initializer:
        return None
    at = chance.randrange(len(graph.initializer))
    copy = TensorProto()
    copy.CopyFrom(graph.initializer[at])
    del graph.initializer[at]
    return copy


CHANGES: tuple[Callable[[onnx.ModelProto, Other, Random], None], ...] = (
    exchange_operands, compute_constant, constant_as_input, constant_as_input, input_as_constant, quantize,
    change_links, change_links, extreme_constant, extreme_constant,
)  # fmt: skip
