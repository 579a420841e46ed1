"""Products of uint8 and int8, whose sums saturate in ONNX Runtime on some processors: models are compared exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import onnxtfl
from onnxtfl.checking.models import copies
from onnxtfl.formats import files
from onnxtfl.kernels.onnxruntime_products import EXACT_SUM, LARGEST_OPERANDS, saturating_model, use_unsigned_weights

HEAD = '<ir_version: 8, opset_import: ["" : 19]> g (uint8[3, 16] x) => ({type}[3, 4] y) '
SCALES = """<float s = {0.02}, uint8 z = {120}, float ws = {0.01}, int8 wz = {0}, float ys = {0.9},
    uint8 yz = {90}> """
BODIES = {
    "MatMulInteger": ("int32", "{ y = MatMulInteger (x, w, z, wz) }"),
    "MatMulInteger without zero points": ("int32", "{ y = MatMulInteger (x, w) }"),
    "QLinearMatMul": ("uint8", "{ y = QLinearMatMul (x, s, z, w, ws, wz, ys, yz) }"),
    "QDQ": (
        "float",
        "{ a = DequantizeLinear (x, s, z)  b = DequantizeLinear (w, ws, wz)  y = MatMul (a, b) }",
    ),
    "QDQ without zero point": (
        "float",
        "{ a = DequantizeLinear (x, s, z)  b = DequantizeLinear (w, ws)  y = MatMul (a, b) }",
    ),
}


def model_of(name: str, as_node: bool = False) -> onnx.ModelProto:
    """A product of uint8 [3, 16] and constant int8 weights [16, 4] of large elements."""
    type_, body = BODIES[name]
    model = parser.parse_model(HEAD.format(type=type_) + SCALES + body)
    array = np.random.default_rng(0).integers(-128, 128, (16, 4), np.int8)
    array[0] = -128, 127, -128, 127
    weights = onnx.numpy_helper.from_array(array, "w")
    if as_node:
        model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["w"], value=weights))
    else:
        model.graph.initializer.append(weights)
    return model


def uint8_copy(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    copy = files.read(model.SerializeToString())
    assert use_unsigned_weights(copy)
    return onnx.load(files.write(copy, path))


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_a_copy_with_uint8_weights_computes_the_same(name: str, as_node: bool, tmp_path: Path) -> None:
    model = model_of(name, as_node)
    copy = uint8_copy(model, tmp_path / "copy.onnx")
    x = np.random.default_rng(1).integers(0, 256, (3, 16), np.uint8)
    (wanted,), (found,) = (ReferenceEvaluator(m).run(None, {"x": x}) for m in (model, copy))
    np.testing.assert_array_equal(found, wanted)


def test_int8_activations_keep_int8_weights() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (int8[3, 2] x) => (int32[3, 1] y) <int8[2, 1] w = {5, 6}> '
    model = parser.parse_model(text + "{ y = MatMulInteger (x, w) }")
    assert not use_unsigned_weights(files.read(model.SerializeToString()))


@pytest.mark.parametrize("name", BODIES)
def test_a_check_runs_the_copy_where_products_saturate(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "products_saturate", lambda: True)
    model = model_of(name)
    converted = onnxtfl.onnx_to_tflite(model, check=True)
    assert converted.check is not None and converted.check.ok
    assert any(copies.EXACT_PRODUCTS in note for note in converted.check.notes)


def test_the_measured_sum_is_exact_in_the_reference(tmp_path: Path) -> None:
    model = onnx.load(files.write(saturating_model(), tmp_path / "m.onnx"))
    (found,) = ReferenceEvaluator(model).run(None, {"x": np.asarray(LARGEST_OPERANDS, np.uint8)})
    assert found.item() == EXACT_SUM
