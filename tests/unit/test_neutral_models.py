"""Neutral ops that no file has, as models of both formats: Map, GetTupleElement, PartialReduce, CustomCall."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from onnxtfl import tflite_to_onnx
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph, print_graph
from onnxtfl.ir.verify import VerifyError, verify
from onnxtfl.options import Options
from tests.unit.lifting import floats
from tests.unit.neutral_models import as_onnx, as_tflite, run_in_both

MAP = """graph main(%x: tensor<2x3xfloat32>, %y: tensor<2x3xfloat32>, %s: tensor<float32>) -> (%z) {
  %z = Map(%x, %y, %s) {computation = graph c(%a: tensor<float32>, %b: tensor<float32>, %k: tensor<float32>) -> (%e) {
    %c = Mul(%a, %b)
    %d = Map(%c, %k) {computation = graph inner(%u: tensor<float32>, %v: tensor<float32>) -> (%w) {
      %w = Max(%u, %v)
    }}
    %e = Tanh(%d)
  }, dimensions = [0, 1]}
}
"""
TUPLE = """graph main(%x: tensor<2x3xfloat32>, %y: tensor<4xint32>) -> (%a, %b) {
  %t = Tuple(%x, %y, %x, %y, %x, %y)
  %u = GetTupleElement(%t) {index = 4}
  %v = GetTupleElement(%t) {index = 1}
  %a = Neg(%u)
  %b = Abs(%v)
}
"""


def partial_reduce(attributes: str, size: str = "5") -> str:
    return (
        f"graph main(%x: tensor<{size}x3xfloat32>, %i: tensor<{size}x3xint32>) -> (%v, %p) {{\n"
        "  %s = constant tensor<float32> [0.5]\n  %n = constant tensor<int32> [-1]\n"
        f"  %v, %p = PartialReduce(%x, %i, %s, %n) {{reduction_dim = 0, {attributes}}}\n}}\n"
    )


def checked(text: str, *inputs: Array) -> list[Array]:
    """The results by evaluation, which both runtimes compute too; the text reads back as what is printed."""
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    wanted = run(graph, list(inputs))
    for found in run_in_both(graph, inputs):
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return wanted


def test_a_map_is_its_computation_at_each_index() -> None:
    x, y = floats(2, 3), floats(2, 3, seed=1)
    (found,) = checked(MAP, x, y, np.asarray(0.25, np.float32))
    np.testing.assert_allclose(found, np.tanh(np.maximum(x * y, 0.25)), rtol=1e-6)


def test_elements_of_a_tuple() -> None:
    x, y = floats(2, 3), np.asarray([1, -2, 3, -4], np.int32)
    a, b = checked(TUPLE, x, y)
    np.testing.assert_array_equal(a, -x)
    np.testing.assert_array_equal(b, abs(y))


def grouped(x: Array, start: float, size: int, is_max: bool) -> tuple[Array, Array]:
    """PartialReduce of a matrix and the numbers of its rows, along axis 0, element by element."""
    count = -(-x.shape[0] // size)
    values, places = np.full((count, x.shape[1]), start, np.float32), np.full((count, x.shape[1]), -1, np.int32)
    for row, column in np.ndindex(x.shape):
        best = values[row // size, column]
        if x[row, column] > best if is_max else x[row, column] < best:
            values[row // size, column], places[row // size, column] = x[row, column], row
    return values, places


@pytest.mark.parametrize("log2", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_partial_reduce_of_values_and_positions(kind: str, log2: int) -> None:
    x = np.round(floats(5, 3) * 2)
    places = np.repeat(np.arange(5, dtype=np.int32)[:, None], 3, 1)
    found = checked(partial_reduce(f'kind = "{kind}", log2_reduction = {log2}'), x, places)
    for a, b in zip(found, grouped(x, 0.5, 1 << log2, kind == "max"), strict=True):
        np.testing.assert_array_equal(a, b)


def test_partial_reduce_of_an_axis_whose_size_is_dynamic() -> None:
    x, places = floats(5, 3), np.repeat(np.arange(5, dtype=np.int32)[:, None], 3, 1)
    text = partial_reduce("log2_reduction = 1", "[n]")
    assert str(parse_graph(text).outputs[0].type) == "tensor<[(n + 1)//2]x3xfloat32>"
    for a, b in zip(checked(text, x, places), grouped(x, 0.5, 2, True), strict=True):
        np.testing.assert_array_equal(a, b)


CALL = """graph main(%x: tensor<2x3xfloat32>) -> (%y) {
  %y = CustomCall(%x) {attributes = {limit = 2.5, "two words" = [1, 2]}, called = "Decode", domain = "my.domain",\
 types = [type tensor<4xfloat32>], version = 3} : tensor<4xfloat32>
}
"""


def test_a_custom_call_is_the_custom_op_of_both_formats() -> None:
    graph = parse_graph(CALL)
    verify(graph)
    assert next(iter(graph.nodes)).op is ops.Custom
    assert print_graph(graph, documented=True) == CALL
    written = as_onnx(graph, Options(allow_custom=True))
    assert [(n.domain, n.op_type) for n in onnx.load_model_from_string(written).graph.node] == [("my.domain", "Decode")]
    assert b"my.domain::Decode" in as_tflite(graph, Options(allow_custom=True))


@pytest.mark.parametrize(
    "type_",
    [
        *("tensor<float32>", "tensor<4xint32>", "tensor<0x3xuint8>", "tensor<2x1x3xbool>", "tensor<2x1x3x2xint64>"),
        "tensor<2x1x2x3x2xint8>",
    ],
)
def test_a_custom_call_keeps_name_payload_and_type(type_: str) -> None:
    """In ONNX, and in ONNX that is made of TFLite."""
    graph = parse_graph(CALL.replace("tensor<2x3xfloat32>", type_).replace("tensor<4xfloat32>", type_))
    options = Options(allow_custom=True)
    back = tflite_to_onnx(as_tflite(graph, options), allow_custom=True, check=False).data
    for data in (as_onnx(graph, options), back or b""):
        model = onnx.load_model_from_string(data)
        (node,) = (node for node in model.graph.node if node.op_type == "Decode")
        payload = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert node.domain == "my.domain" and payload == {"limit": 2.5, "two words": [1, 2]}
        (found,), (wanted,) = model.graph.output, parse_graph(f"graph g(%x: {type_}) -> (%x) {{\n}}").outputs
        tensor = found.type.tensor_type
        assert onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type) == wanted.dtype.numpy
        assert tuple(d.dim_value for d in tensor.shape.dim) == wanted.shape


X = "graph main(%x: tensor<2x3xfloat32>, %y: tensor<3x2xfloat32>) -> (%z) {\n"
SCALARS = "%a: tensor<float32>, %b: tensor<float32>"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"%z = Map(%x, %y) {{computation = graph c({SCALARS}) -> (%a) {{\n}}}}", "the shape of an operand"),
        (f"%z = Map(%x) {{computation = graph c({SCALARS}) -> (%a) {{\n}}}}", "takes 2 values, not 1"),
        ("%z = Map(%x) {computation = graph c(%a: tensor<int32>) -> (%a) {\n}}", r"takes tensor<int32>, not"),
        ("%z = Map(%x) {computation = graph c(%a: tensor<float32>) -> (%a) {\n}, dimensions = [0]}", "dimensions"),
        ("%z = Map() {computation = graph c() -> () {\n}}", "operand 0 is absent"),
        ("%z = GetTupleElement(%x) {index = 0}", "not a tuple"),
        ("%t = Tuple(%x)\n%z = GetTupleElement(%t) {index = 1}", "index 1 of a tuple of 1 elements"),
        ("%z = PartialReduce(%x)", "as many initial values as inputs"),
        ('%z, %w = PartialReduce(%x, %x, %x, %x) {kind = "sum"}', "sum of several inputs"),
    ],
)
def test_operands_that_do_not_fit(statement: str, said: str) -> None:
    with pytest.raises(InvalidModelError, match=said):
        parse_graph(f"{X} {statement}\n}}")


def test_the_verifier_names_the_op() -> None:
    graph = parse_graph(MAP)
    (node,) = graph.nodes
    node.attributes["dimensions"] = (0,)
    with pytest.raises(VerifyError, match=r"dimensions \[0\] of rank 2"):
        verify(graph)


@pytest.mark.parametrize("convert", [as_tflite, as_onnx])
def test_a_computation_that_is_not_elementwise_is_an_error(convert: Any) -> None:
    body = '%c = Reduce(%a) {kind = "sum"}'
    text = f"{X} %z = Map(%x) {{computation = graph c(%a: tensor<float32>) -> (%c) {{\n {body}\n}}}}\n}}"
    assert run(parse_graph(text), [floats(2, 3), floats(3, 2)])[0].shape == (2, 3)
    with pytest.raises(UnsupportedError, match="Reduce in the computation of a Map is not elementwise"):
        convert(parse_graph(text))
