"""Random mutations of valid models: the results parse, but most of them are invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

_NUMBERS = (0, 1, -1, 2, 3, -2, 5, 7, 100, -100, 2**31 - 1, 2**31, -(2**31), 2**40, 2**63 - 1, -(2**63))
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e30, -1e30, float("inf"), float("nan"))
_TEXTS = ("", "NOTSET", "SAME_UPPER", "linear", "constant", "sum", "nonsense", "ij,jk->ik", "ü\n")
_TYPES = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16, TensorProto.INT8,
    TensorProto.UINT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64,
    TensorProto.BOOL, TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.INT4, TensorProto.FLOAT8E4M3FN,
)  # fmt: skip
_SIZES = (0, 1, 2, 3, 5, 64, 2**31 - 1, 2**40, 2**62, -1)
Random = np.random.Generator


def mutated(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy of `model` with one to three mutations."""
    random = np.random.default_rng(seed)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for _ in range(1 + int(random.integers(3))):
        _choose(random, _MUTATIONS)(result, random)
    return result


def _choose(random: Random, options: Sequence[Any]) -> Any:
    return options[int(random.integers(len(options)))]


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs_of(attribute.g)


def _node(model: onnx.ModelProto, random: Random) -> onnx.NodeProto | None:
    nodes = [node for graph in graphs_of(model.graph) for node in graph.node]
    return _choose(random, nodes) if nodes else None


def change_attribute(model: onnx.ModelProto, random: Random) -> None:
    """Change an attribute to another value of the same kind."""
    node = _node(model, random)
    if node is not None and node.attribute:
        _change_value(_choose(random, node.attribute), random)


def _change_value(attribute: AttributeProto, random: Random) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = _choose(random, _NUMBERS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = _choose(random, _FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = _choose(random, _TEXTS).encode()
    elif attribute.type == AttributeProto.INTS:
        _change_list(attribute.ints, _NUMBERS, random)
    elif attribute.type == AttributeProto.FLOATS:
        _change_list(attribute.floats, _FLOATS, random)
    elif attribute.type == AttributeProto.STRINGS:
        _change_list(attribute.strings, [text.encode() for text in _TEXTS], random)
    elif attribute.type == AttributeProto.TENSOR:
        _change_tensor(attribute.t, random)


def _change_list(values: Any, options: Sequence[Any], random: Random) -> None:
    kind = int(random.integers(4))
    if kind == 0 or not values:
        values.append(_choose(random, options))
    elif kind == 1:
        values.pop()
    elif kind == 2:
        values[int(random.integers(len(values)))] = _choose(random, options)
    else:
        values[:] = list(reversed(values))


def set_attribute(model: onnx.ModelProto, random: Random) -> None:
    """Set an attribute that the op defines to any value of its kind or of another one, or remove it."""
    node = _node(model, random)
    if node is None:
        return
    try:
        known = dict(onnx.defs.get_schema(node.op_type, model.opset_import[0].version, node.domain).attributes)
    except (onnx.defs.SchemaError, IndexError):
        return
    name = _choose(random, sorted(known)) if known else "axis"
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    kind = int(known[name].type.value) if known and random.integers(4) else _choose(random, range(1, 15))
    if random.integers(5):
        node.attribute.append(_random_attribute(name, kind, random))


def _random_attribute(name: str, kind: int, random: Random) -> AttributeProto:
    attribute = AttributeProto(name=name, type=kind)
    if kind == AttributeProto.GRAPH:
        attribute.g.name = "empty"
    for _ in range(int(random.integers(5)) if kind > AttributeProto.GRAPH else 1):
        _change_value(attribute, random)
    return attribute


def change_input_shape(model: onnx.ModelProto, random: Random) -> None:
    """Change the shape of an input: another size, a dynamic one, another rank, or no shape."""
    value = _choose(random, model.graph.input) if model.graph.input else None
    if value is None or not value.type.HasField("tensor_type"):
        return
    shape = value.type.tensor_type.shape
    kind = int(random.integers(5))
    if kind == 0 or not shape.dim:
        shape.dim.add(dim_value=_choose(random, _SIZES))
    elif kind == 1:
        shape.dim.pop()
    elif kind == 2:
        value.type.tensor_type.ClearField("shape")
    elif kind == 3:
        dim = _choose(random, shape.dim)
        dim.Clear()
        dim.dim_param = _choose(random, ["n", "m", ""])
    else:
        _choose(random, shape.dim).dim_value = _choose(random, _SIZES)


def change_input_type(model: onnx.ModelProto, random: Random) -> None:
    """Change the element type of an input."""
    tensors = [v.type.tensor_type for v in model.graph.input if v.type.HasField("tensor_type")]
    if tensors:
        _choose(random, tensors).elem_type = _choose(random, _TYPES)


def change_operands(model: onnx.ModelProto, random: Random) -> None:
    """Change the operands of a node: one more, one less, an absent one, the reverse order, another value."""
    node = _node(model, random)
    if node is None:
        return
    names = [v.name for v in model.graph.input] + [t.name for t in model.graph.initializer] + [""]
    kind = int(random.integers(4))
    if kind == 0 or not node.input:
        node.input.append(_choose(random, names))
    elif kind == 1:
        node.input.pop()
    elif kind == 2:
        node.input[int(random.integers(len(node.input)))] = _choose(random, names)
    else:
        node.input[:] = list(reversed(node.input))


def change_constant(model: onnx.ModelProto, random: Random) -> None:
    """Change the values, the shape or the type of an initializer."""
    if model.graph.initializer:
        _change_tensor(_choose(random, model.graph.initializer), random)


def _change_tensor(tensor: TensorProto, random: Random) -> None:
    if tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
        tensor.CopyFrom(numpy_helper.from_array(np.asarray(_choose(random, _FLOATS), np.float32), tensor.name))
        return
    array = np.array(numpy_helper.to_array(tensor))
    kind = int(random.integers(4))
    if kind == 0 and array.size:
        options = _NUMBERS if array.dtype.kind in "iub" else _FLOATS
        with np.errstate(all="ignore"):
            array.reshape(-1)[int(random.integers(array.size))] = np.asarray(_choose(random, options)).astype(
                array.dtype
            )
    elif kind == 1:
        array = np.concatenate([array.reshape(-1), array.reshape(-1)[:1]])
    elif kind == 2:
        array = array.reshape(-1)[1:] if random.integers(2) else array.reshape(1, *array.shape)
    else:
        types = [t for t in _TYPES if t not in (TensorProto.STRING, TensorProto.INT4)]
        with np.errstate(all="ignore"):
            array = array.astype(helper.tensor_dtype_to_np_dtype(_choose(random, types)))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def change_opset(model: onnx.ModelProto, random: Random) -> None:
    """Change the opset to an older or a newer one."""
    if model.opset_import:
        model.opset_import[0].version = int(random.integers(1, 26))


def change_op(model: onnx.ModelProto, random: Random) -> None:
    """Change the op of a node, with the same operands and attributes."""
    node = _node(model, random)
    if node is not None:
        node.op_type = _choose(random, _ops())


def _ops() -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain})


def change_results(model: onnx.ModelProto, random: Random) -> None:
    """Change the results of a node: one more, one less; or remove or duplicate an output of a subgraph."""
    node = _node(model, random)
    graph = _choose(random, list(graphs_of(model.graph)))
    kind = int(random.integers(4))
    if kind == 0 and node is not None:
        node.output.append("more")
    elif kind == 1 and node is not None and node.output:
        node.output.pop()
    elif kind == 2 and graph.output:
        graph.output.append(graph.output[0])
    elif graph.output and graph is not model.graph:
        graph.output.pop()


_MUTATIONS: tuple[Callable[[onnx.ModelProto, Random], None], ...] = (
    change_attribute, change_attribute, set_attribute, set_attribute, change_input_shape, change_input_shape,
    change_input_type, change_operands, change_constant, change_constant, change_constant, change_opset, change_op,
    change_results,
)  # fmt: skip
