"""Types of few bits are held in types that TFLite has: constants, casts, inputs and outputs, and how these are told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir.data import Array
from tests.harness.io_types import IoTypes
from tests.harness.litert import run_tflite
from tests.unit.tiny_models import onnx_model

RNG = np.random.default_rng(0)
WIDTHS = {"BFLOAT16": 16, "FLOAT8E4M3FN": 8, "FLOAT8E4M3FNUZ": 8, "FLOAT8E5M2": 8, "FLOAT8E5M2FNUZ": 8}
WIDTHS |= {"FLOAT8E8M0": 8, "FLOAT4E2M1": 4, "INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2}


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[Any], **constants: Array
) -> onnx.ModelProto:
    """A model of `nodes`; (name, type, shape) of its inputs and outputs."""
    types = [
        [(name, getattr(TensorProto, type_), shape) for name, type_, shape in specs] for specs in (inputs, outputs)
    ]
    return onnx_model(list(nodes), *types, constants, opset=25)


def computed(model: onnx.ModelProto, *arrays: Array, **options: Any) -> list[Array]:
    """The outputs of the converted model in the types of the source."""
    done = onnxtfl.onnx_to_tflite(model, check=False, **options)
    types = IoTypes(done.report)
    assert done.data is not None
    return types.read([array for _, array in run_tflite(done.data, types.given(arrays))])


@pytest.mark.parametrize("io_dtype", ["source", "bits"])
@pytest.mark.parametrize("name", WIDTHS)
def test_inputs_and_outputs_keep_every_value(name: str, io_dtype: str) -> None:
    small = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name))
    width = WIDTHS[name]
    x = np.arange(1 << width).astype(np.uint16 if width == 16 else np.uint8).view(small)
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = model_of(nodes, [("x", name, [x.size])], [("y", name, [2, x.size // 2])], shape=np.asarray([2, -1]))
    (y,) = computed(model, x, io_dtype=io_dtype)
    np.testing.assert_array_equal(y.reshape(-1).astype(np.float32), x.astype(np.float32))


def test_the_report_and_the_file_tell_which_types_changed() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = model_of(nodes, [("x", "BFLOAT16", [4])], [("y", "BFLOAT16", [4])])
    done = onnxtfl.onnx_to_tflite(model, check=False)
    assert [str(type_) for type_ in done.report.io_types] == [
        "x: values of bfloat16 as float32",
        "y: values of bfloat16 as float32",
    ]
    assert "values of bfloat16 as float32" in str(done.report)
    told = {"x": ["bfloat16", "float32", False], "y": ["bfloat16", "float32", False]}
    assert done.data is not None
    assert json.dumps(told).encode() in done.data
    bits = onnxtfl.onnx_to_tflite(model, check=False, io_dtype="bits")
    assert str(bits.report.io_types[0]) == "x: bits of bfloat16 as uint16"


def test_float16_models_have_float32_inputs_and_outputs_if_asked_for() -> None:
    nodes = [helper.make_node("Add", ["x", "x"], ["y"])]
    model = model_of(nodes, [("x", "FLOAT16", [4])], [("y", "FLOAT16", [4])])
    done = onnxtfl.onnx_to_tflite(model, check=False, io_dtype="float32")
    assert [tensor.dtype for tensor in (*done.report.inputs, *done.report.outputs)] == ["float32", "float32"]
    x = np.asarray([1, 2, 0.1, -4], np.float16)
    assert computed(model, x, io_dtype="float32")[0].tolist() == (x + x).tolist()


def test_a_cast_that_is_undone_rounds() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16)]
    nodes += [helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)]
    model = model_of(nodes, [("x", "FLOAT", [64])], [("y", "FLOAT", [64])])
    x = RNG.standard_normal(64).astype(np.float32)
    np.testing.assert_array_equal(computed(model, x)[0], x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_arithmetic_does_not_round_its_operands() -> None:
    """A PyTorch export under autocast: weights and activations are cast, the product is what counts."""
    weight = (RNG.standard_normal((32, 16)) / 8).astype(ml_dtypes.bfloat16)
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16)]
    nodes += [helper.make_node("MatMul", ["h", "w"], ["p"])]
    nodes += [helper.make_node("Cast", ["p"], ["y"], to=TensorProto.FLOAT)]
    model = model_of(nodes, [("x", "FLOAT", [4, 32])], [("y", "FLOAT", [4, 16])], w=weight)
    done = onnxtfl.onnx_to_tflite(model, check=False)
    assert "ROUND" not in done.report.ops_after and "DIV" not in done.report.ops_after


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1", "INT4", "UINT4", "INT2", "UINT2"])
def test_dequantized_weights(name: str, block: int) -> None:
    small = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name))
    weight = (RNG.integers(0, 4, (64, 32)) / (1 if "INT" in name else 2)).astype(np.float32).astype(small)
    scale = (RNG.random((4, 32) if block else (32,)) + 0.5).astype(np.float32)
    attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["r"], **attributes)]
    nodes += [helper.make_node("MatMul", ["x", "r"], ["y"])]
    model = model_of(nodes, [("x", "FLOAT", [3, 64])], [("y", "FLOAT", [3, 32])], w=weight, s=scale)
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    real = weight.astype(np.float32) * (np.repeat(scale, 16, 0) if block else scale)
    np.testing.assert_allclose(computed(model, x)[0], x @ real, rtol=1e-4, atol=1e-4)


def test_large_float8_weights_are_stored_in_two_bytes() -> None:
    weight = RNG.standard_normal((128, 128)).astype(np.float32).astype(ml_dtypes.float8_e4m3fn)
    nodes = [
        helper.make_node("Cast", ["w"], ["r"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    model = model_of(nodes, [("x", "FLOAT", [2, 128])], [("y", "FLOAT", [2, 128])], w=weight)
    done = onnxtfl.onnx_to_tflite(model, check=False)
    assert done.report.size < 2.2 * 128 * 128


def test_bits_of_a_small_type_are_read() -> None:
    nodes = [helper.make_node("BitCast", ["x"], ["b"], to=TensorProto.BFLOAT16)]
    nodes += [helper.make_node("Neg", ["b"], ["n"]), helper.make_node("BitCast", ["n"], ["y"], to=TensorProto.UINT16)]
    types = [[(n, TensorProto.UINT16, [5])] for n in ("x", "y")]
    model = onnx_model(nodes, *types, opset=26)
    x = np.asarray([1.5, -2.0, 0.5, 3e38, np.inf], ml_dtypes.bfloat16)
    (y,) = computed(model, x.view(np.uint16))
    np.testing.assert_array_equal(y, (-x).view(np.uint16))


def test_bfloat16_in_the_branches_of_an_if() -> None:
    branches = {}
    for key, op in (("then_branch", "Add"), ("else_branch", "Mul")):
        out = helper.make_tensor_value_info("o", TensorProto.BFLOAT16, [3])
        branches[key] = helper.make_graph([helper.make_node(op, ["x", "x"], ["o"])], key, [], [out])
    nodes = [helper.make_node("If", ["c"], ["y"], **branches)]
    model = model_of(nodes, [("c", "BOOL", []), ("x", "BFLOAT16", [3])], [("y", "BFLOAT16", [3])])
    x = np.asarray([1.5, 3, -7], ml_dtypes.bfloat16)
    for flag, wanted in ((True, x + x), (False, x * x)):
        np.testing.assert_array_equal(computed(model, np.asarray(flag), x)[0].astype(float), wanted.astype(float))


def test_bits_of_float16_are_read() -> None:
    nodes = [helper.make_node("BitCast", ["x"], ["h"], to=TensorProto.FLOAT16)]
    nodes += [helper.make_node("Neg", ["h"], ["n"]), helper.make_node("BitCast", ["n"], ["y"], to=TensorProto.INT16)]
    model = onnx_model(nodes, [("x", TensorProto.INT16, [4])], [("y", TensorProto.INT16, [4])], opset=26)
    x = np.asarray([1.5, -2.0, 6e4, 1e-5], np.float16)
    np.testing.assert_array_equal(computed(model, x.view(np.int16))[0], (-x).view(np.int16))


@pytest.mark.parametrize("io_dtype", ["source", "bits"])
def test_the_check_compares_inputs_and_outputs_in_the_types_of_the_source(io_dtype: Any) -> None:
    weight = (RNG.standard_normal((32, 16)) / 6).astype(ml_dtypes.bfloat16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, [("x", "BFLOAT16", [4, 32])], [("y", "BFLOAT16", [4, 16])], w=weight)
    check = onnxtfl.onnx_to_tflite(model, io_dtype=io_dtype).check
    assert check is not None
    assert check.status == "passed", check.reason
