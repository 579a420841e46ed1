"""Small ONNX models that together use most of the format, for the tests of reader and writer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from onnxtfl.ir.types import DType

_RANDOM = np.random.default_rng(7)
FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
main (float[N, 4] x) => (float[N, 4] y, float[N, 4] same) {
    h = local.outer <alpha: float = 0.5> (x)
    y, same = local.two (h)
}
<domain: "local", opset_import: ["" : 13, "local" : 1]>
outer <alpha: float, beta: float = 2.0> (a) => (b) {
    s = Constant <value_float: float = @alpha> ()
    t = Constant <value_float: float = @beta> ()
    m = local.scaled <gamma: float = @alpha> (a, s)
    b = Mul (m, t)
}
<domain: "local", opset_import: ["" : 13]>
scaled <gamma: float> (a, s, absent) => (c) {
    d = Mul (a, s)
    c = LeakyRelu <alpha: float = @gamma> (d)
}
<domain: "local", opset_import: ["" : 13]>
two (a) => (b, a) {
    b = Neg (a)
}
"""
CONTROL_FLOW = """
<ir_version: 8, opset_import: ["" : 16]>
main (float[N] x, bool flag, int64 trips) => (float[N] y, float[N] z)
<float[1] w = {3.0}>
{
    h = Mul (x, w)
    y = If (flag) <
        then_branch = then () => (float[N] a) { a = Add (h, w) },
        else_branch = otherwise () => (float[N] b) {
            b = If (flag) <
                then_branch = inner () => (float[N] c) { c = Sub (x, h) },
                else_branch = outer_value () => (float[N] d) { d = Identity (h) }
            >
        }
    >
    yes = Constant <value = bool {1}> ()
    z = Loop (trips, yes, x) <
        body = body (int64 i, bool go, float[N] state) => (bool go_on, float[N] next) {
            go_on = Identity (go)
            next = Add (state, h)
        }
    >
}
"""
TYPES = """
<ir_version: 8, opset_import: ["" : 17]>
main (seq(float[N]) s, optional(float[M]) o, float[?, 2, "batch size", 3] f) => (float[M] e, float[K] c) {
    e = OptionalGetElement (o)
    c = ConcatFromSequence <axis: int = 0> (s)
}
"""


def with_weights() -> onnx.ModelProto:
    """A tensor of every element type, small and large, in every field for the type; all are outputs."""
    tensors = []
    for dtype in DType:
        number = getattr(TensorProto, _PROTO_NAMES.get(dtype.name, dtype.name))
        for size in (6, 3000):
            array = random_array(dtype, size)
            tensors += _stored(f"{dtype.value}_{size}", array, dtype, number)
    outputs = [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in tensors]
    graph = helper.make_graph([], "weights", [], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=13)


_PROTO_NAMES = {"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE"}


def random_array(dtype: DType, size: int) -> Any:
    """Values of the whole range of a type, negative ones too."""
    if dtype is DType.STRING:
        return np.asarray([f"text {i} ü" for i in range(size)], object)
    if dtype.is_complex:
        return (_RANDOM.standard_normal(size) + 1j * _RANDOM.standard_normal(size)).astype(dtype.numpy)
    if dtype.is_float:
        return _RANDOM.standard_normal(size).astype(dtype.numpy)
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - dtype.is_signed)) - 1
    return _RANDOM.integers(low, high, size, np.uint64 if dtype is DType.UINT64 else np.int64, True).astype(dtype.numpy)


def _stored(name: str, array: Any, dtype: DType, number: int) -> list[onnx.TensorProto]:
    """The tensor twice: as raw data and in the field of its type."""
    if dtype is DType.STRING:
        return [helper.make_tensor(name, number, array.shape, [s.encode() for s in array])]
    shape = (2, len(array) // 2)
    raw = numpy_helper.from_array(array.reshape(shape), f"{name}_raw")
    raw.data_type = number
    values = array.tolist() if not (dtype.is_float and dtype.bits < 32) else array.astype(np.float32).tolist()
    return [raw, helper.make_tensor(f"{name}_field", number, shape, values)]


def sparse() -> onnx.ModelProto:
    """A sparse initializer, a sparse constant, tensors in lists, and large tensors in attributes."""
    values = numpy_helper.from_array(np.asarray([1.0, 2.0, 3.0], np.float32), "thin")
    linear = numpy_helper.from_array(np.asarray([1, 5, 11], np.int64), "")
    places = numpy_helper.from_array(np.asarray([[0, 1], [1, 1], [2, 3]], np.int64), "")
    large = numpy_helper.from_array(np.arange(4000, dtype=np.float32), "")
    nodes = [
        helper.make_node("Constant", [], ["a"], sparse_value=helper.make_sparse_tensor(values, places, [3, 4])),
        helper.make_node("Constant", [], ["b"], value=large),
        helper.make_node("Add", ["a", "thin"], ["y"]),
        helper.make_node("Other", ["b"], ["z"], domain="far.away", tensors=[large, values], names=["p", "q"]),
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "z")]
    graph = helper.make_graph(nodes, "sparse", [], outputs)
    graph.sparse_initializer.append(helper.make_sparse_tensor(values, linear, [3, 4]))
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("far.away", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def samples() -> dict[str, bytes]:
    """Serialized models by name."""
    texts = {"functions": FUNCTIONS, "control_flow": CONTROL_FLOW, "types": TYPES}
    models = {name: parser.parse_model(text) for name, text in texts.items()}
    models |= {"weights": with_weights(), "sparse": sparse()}
    return {name: model.SerializeToString() for name, model in models.items()}
