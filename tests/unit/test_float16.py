"""Models in float16, as ONNX Runtime's convert_float_to_float16 writes them: their check, and `float16="native"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.ir.text import parse_graph
from onnxtfl.passes.types.float16 import Float16Ops, keep_float16
from onnxtfl.targets.tflite import TfliteTarget
from tests.passes.helpers import op_counts

HIDDEN, HEADS, LENGTH = 32, 2, 16
NEWEST = "litert-2.3"


class Encoder:
    """One encoder layer of BERT, its weights and arithmetic in float16; `keep_io_types`: float32 in and out."""

    def __init__(self, keep_io_types: bool, scale: float = (HIDDEN // HEADS) ** -0.5) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        io = TensorProto.FLOAT if keep_io_types else TensorProto.FLOAT16
        x = self.op("Cast", ["x"], to=TensorProto.FLOAT16) if keep_io_types else "x"
        x = self.op("Add", [x, self.attention(self.norm(x), scale)])
        x = self.op("Add", [x, self.feed_forward(self.norm(x))])
        self.nodes.append(helper.make_node("Cast" if keep_io_types else "Identity", [x], ["y"]))
        if keep_io_types:
            self.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
        infos = [helper.make_tensor_value_info(name, io, [2, LENGTH, HIDDEN]) for name in "xy"]
        graph = helper.make_graph(self.nodes, "encoder", infos[:1], infos[1:], self.weights)
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def op(self, name: str, operands: list[str], **attributes: Any) -> str:
        self.nodes.append(helper.make_node(name, operands, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def constant(self, value: Any, dtype: type = np.float16) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def weight(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape) / shape[0] ** 0.5)

    def norm(self, x: str) -> str:
        return self.op("LayerNormalization", [x, self.constant(np.ones(HIDDEN)), self.weight(HIDDEN)], axis=-1)

    def attention(self, x: str, scale: float) -> str:
        split = self.constant([0, LENGTH, HEADS, HIDDEN // HEADS], np.int64)

        def head(order: list[int]) -> str:
            projected = self.op("Add", [self.op("MatMul", [x, self.weight(HIDDEN, HIDDEN)]), self.weight(HIDDEN)])
            return self.op("Transpose", [self.op("Reshape", [projected, split])], perm=order)

        query, key, value = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
        scores = self.op("Mul", [self.op("MatMul", [query, key]), self.constant(scale)])
        mixed = self.op("Transpose", [self.op("MatMul", [self.op("Softmax", [scores]), value])], perm=[0, 2, 1, 3])
        joined = self.op("Reshape", [mixed, self.constant([0, LENGTH, HIDDEN], np.int64)])
        return self.op("MatMul", [joined, self.weight(HIDDEN, HIDDEN)])

    def feed_forward(self, x: str) -> str:
        up = self.op("MatMul", [x, self.weight(HIDDEN, 2 * HIDDEN)])
        erf = self.op("Erf", [self.op("Div", [up, self.constant(2**0.5)])])
        gelu = self.op("Mul", [self.op("Mul", [up, self.op("Add", [erf, self.constant(1)])]), self.constant(0.5)])
        return self.op("MatMul", [gelu, self.weight(2 * HIDDEN, HIDDEN)])


@pytest.mark.parametrize("keep_io_types", [False, True])
def test_an_encoder_in_float16_is_accepted_and_a_mistake_in_it_is_not(keep_io_types: bool, tmp_path: Path) -> None:
    model = Encoder(keep_io_types).model
    path = tmp_path / "right.tflite"
    result = onnxtfl.onnx_to_tflite(model, path, check="require")
    assert result.check is not None
    assert result.check.outputs[0].accepted_by == "float32-reference"
    onnxtfl.onnx_to_tflite(Encoder(keep_io_types, scale=0.27).model, path, check=False)  # 0.25 in the source
    assert onnxtfl.check(model, path).status == "failed"


@pytest.mark.parametrize("keep_io_types", [False, True])
def test_an_encoder_with_native_float16(keep_io_types: bool, tmp_path: Path) -> None:
    """What has a kernel stays float16, matrix products and means have none; the mistake is found there too."""
    model = Encoder(keep_io_types).model
    path = tmp_path / "right.tflite"
    result = onnxtfl.onnx_to_tflite(model, path, float16="native", min_runtime=NEWEST, check="require")
    assert " ops compute in float16" in result.report.float16
    assert "DotGeneral" in result.report.float16
    assert "Softmax" not in result.report.float16
    assert "float16" in str(result.report)
    wrong = Encoder(keep_io_types, scale=0.27).model
    onnxtfl.onnx_to_tflite(wrong, path, float16="native", min_runtime=NEWEST, check=False)
    assert onnxtfl.check(model, path).status == "failed"


def test_runtimes_without_the_kernels_compute_in_float32() -> None:
    result = onnxtfl.onnx_to_tflite(Encoder(False).model, float16="native", check="require")
    assert result.report.float16.startswith("0 ops compute in float16")
    assert result.check is not None
    assert result.check.outputs[0].accepted_by == "float32-reference"


def test_casts_are_where_the_types_change() -> None:
    """Moves follow their operand, one cast serves all readers, and a float32 that was rounded is read unrounded."""
    text = """graph main(%x: tensor<2x3xfloat32>) -> (%y, %z) {
      %h = Convert(%x) {dtype = !float16}
      %e = Exp(%h)
      %r = Reshape(%e, %s)
      %y = Exp(%r)
      %z = Tanh(%r)
    }""".replace("%r = R", "%s = constant tensor<1xint64> [6]\n      %r = R")
    graph = parse_graph(text)
    assert keep_float16(graph, TfliteTarget(NEWEST)) == Float16Ops(1, {"Exp": 2})
    counts = op_counts(graph)
    assert counts["Convert"] == 3  # of %x (unused), of %r for Tanh, of %y for the output
    assert str(graph.outputs[0].dtype) == str(graph.outputs[1].dtype)


def test_loops_and_quantized_models_stay_in_float32() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float16[2] x, bool c) => (float16[2] y) {
      y = If (c) <then_branch = a () => (float16[2] p) { p = Tanh (x) },
                  else_branch = b () => (float16[2] q) { q = Neg (x) }>
    }"""
    model = onnx.parser.parse_model(text)
    result = onnxtfl.onnx_to_tflite(model, float16="native", min_runtime=NEWEST, check="require")
    assert result.report.float16.startswith("computed in float32")
