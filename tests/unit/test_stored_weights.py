"""Quantized weights of float ops: they stay as small in the file as they are in the source."""

from __future__ import annotations

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.packed import ByteData, FieldData, packed_bytes
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.tiny_models import onnx_model

F, N, K = TensorProto.FLOAT, 384, 512
RANGES = {
    TensorProto.INT4: (-8, 8),
    TensorProto.UINT4: (0, 16),
    TensorProto.INT8: (-128, 128),
    TensorProto.UINT8: (0, 256),
    TensorProto.INT16: (-(1 << 15), 1 << 15),
}
RNG = np.random.default_rng(0)


def integers(type_: int, *shape: int) -> Array:
    return RNG.integers(*RANGES[type_], shape)


def scales(*shape: int) -> Array:
    return RNG.uniform(0.001, 0.01, shape).astype(np.float32)


def packed(name: str, values: Array, type_: int) -> onnx.TensorProto:
    """A constant whose elements are packed, as files have them."""
    bits = 4 if type_ in (TensorProto.INT4, TensorProto.UINT4) else 8 * helper.tensor_dtype_to_np_dtype(type_).itemsize
    raw = values.astype(helper.tensor_dtype_to_np_dtype(type_))
    if bits == 4:
        nibbles = (values.reshape(-1) & 15).astype(np.uint8)
        raw = nibbles[::2] | nibbles[1::2] << 4 if nibbles.size > 1 else nibbles
    return helper.make_tensor(name, type_, values.shape, raw.tobytes(), raw=True)


def converted(
    nodes: list[onnx.NodeProto], x: Array, shape: list[int], *constants: onnx.TensorProto
) -> tuple[Array, float]:
    """The output y for the input x, and the size of the TFLite file relative to that of the source."""
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph(nodes, "g", [given], [helper.make_tensor_value_info("y", F, shape)], list(constants))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    result = onnxtfl.onnx_to_tflite(data, check=False).data
    assert result is not None
    return run_tflite(result, [x])[0][1], len(result) / len(data)


@pytest.mark.parametrize("type_", list(RANGES))
@pytest.mark.parametrize(("axis", "block"), [(None, 0), (0, 0), (1, 0), (0, 32), (1, 64)])
def test_weights_of_a_product(type_: int, axis: int | None, block: int) -> None:
    shape = [] if axis is None else [(K, N)[axis]]
    if block:
        shape = [d // block if i == axis else d for i, d in enumerate((K, N))]
    w, s, z = integers(type_, K, N), scales(*shape), integers(type_, *shape) // 4
    attributes = {"axis": axis or 0} | ({"block_size": block} if block else {})
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], **attributes),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    x = RNG.standard_normal((2, K)).astype(np.float32)
    constants = (packed("w", w, type_), numpy_helper.from_array(s, "s"), packed("z", z, type_))
    y, ratio = converted(nodes, x, [2, N], *constants)
    wide = [np.repeat(v, block, axis) if block else v if axis != 0 else v[:, None] for v in (s, z)]
    wanted = x @ ((w - wide[1]) * wide[0])
    np.testing.assert_allclose(y, wanted, atol=1e-5 * np.abs(wanted).max())
    assert ratio < 1.25  # a zero point takes 8 bytes in a TFLite file, and 4 bits in these


_PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, object]]] = {
    "Conv": ((1, 4, 6, 6), (8, 4, 3, 3), {}),
    "ConvTranspose": ((1, 4, 6, 6), (4, 8, 3, 3), {"strides": [2, 2]}),
    "MatMul": ((6, 16), (16, 8), {}),
}


@pytest.mark.parametrize("op", _PRODUCTS)
def test_int4_weights_of_quantized_activations(op: str) -> None:
    """Not every runtime has a kernel for int4 beside int8 activations: the weights become int8."""
    sizes, kernel, attributes = _PRODUCTS[op]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"]),
        helper.make_node(op, ["xr", "wr"], ["y"], **attributes),
        helper.make_node("QuantizeLinear", ["y", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["z"]),
    ]
    scalars = {"xs": np.float32(0.02), "xz": np.uint8(128), "ws": np.float32(0.03), "ys": np.float32(0.05)}
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in (scalars | {"yz": np.uint8(128)}).items()]
    weights = packed("w", integers(TensorProto.INT4, *kernel), TensorProto.INT4)
    given, made = (helper.make_tensor_value_info(n, F, s) for n, s in (("x", sizes), ("z", None)))
    graph = helper.make_graph(nodes, "g", [given], [made], [weights, *constants])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    found, x = onnxtfl.onnx_to_tflite(model, check=False), RNG.standard_normal(sizes).astype(np.float32)
    assert found.report.quantization is not None
    assert not found.report.quantization.float_ops
    ((_, y),) = run_tflite(found.data or b"", [x])
    assert np.abs(y - run_onnx(model, {"x": x})["z"]).max() < 0.051


def test_few_real_values_times_stored_weights_pass_the_check() -> None:
    """By default, ONNX Runtime rounds the values to int8: with few of them, that is 1 % of the largest result."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.integers(-127, 127, (16, 4)).astype(np.int8), "s": np.float32(0.01), "z": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"]),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    conversion = onnxtfl.onnx_to_tflite(onnx_model(nodes, [("x", F, (1, 16))], [("y", F, (1, 4))], constants))
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.check.outputs[0].max_abs is not None
    assert conversion.check.outputs[0].max_abs < 1e-5


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("with_zero", [True, False])
def test_matmul_of_few_bits(bits: int, with_zero: bool) -> None:
    block, count = 32, K // 32
    per = 8 // bits
    fields = RNG.integers(0, 1 << bits, (N, K))
    zeros = RNG.integers(0, 1 << bits, (N, count)) if with_zero else np.full((N, count), 1 << (bits - 1))
    stored, stored_zeros = (sum(v[:, k::per] << bits * k for k in range(per)).astype(np.uint8) for v in (fields, zeros))
    s, x = scales(N, count), RNG.standard_normal((2, K)).astype(np.float32)
    names = ["x", "w", "s"] + ["z"] * with_zero
    attributes = {"K": K, "N": N, "bits": bits, "block_size": block, "domain": "com.microsoft"}
    node = helper.make_node("MatMulNBits", names, ["y"], **attributes)
    constants = [
        numpy_helper.from_array(stored.reshape(N, count, -1), "w"),
        numpy_helper.from_array(s.reshape(-1), "s"),
        *([numpy_helper.from_array(stored_zeros.reshape(-1), "z")] if with_zero else []),
    ]
    y, ratio = converted([node], x, [2, N], *constants)
    wanted = x @ ((fields - np.repeat(zeros, block, 1)) * np.repeat(s, block, 1)).T
    np.testing.assert_allclose(y, wanted, atol=1e-5 * np.abs(wanted).max())
    assert ratio < 1.25


@pytest.mark.parametrize("bits", [4, 8])
def test_more_scales_than_types_have_stay_operands(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a large language model have millions."""
    monkeypatch.setattr("onnxtfl.passes.quantize.types.MOST_SCALES", 64)
    test_matmul_of_few_bits(bits, True)


def test_scales_of_blocks_are_not_held() -> None:
    """A quarter of a million of them would be 10 MB of Python numbers for each weight."""
    rows, columns, block = 2048, 4200, 32
    stored = np.zeros((rows, columns // block + 1, block // 2), np.uint8)
    attributes = {"K": columns, "N": rows, "bits": 4, "block_size": block, "domain": "com.microsoft"}
    nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **attributes)]
    constants = [
        numpy_helper.from_array(stored, "w"),
        numpy_helper.from_array(scales(rows * stored.shape[1]), "s"),
    ]
    given = helper.make_tensor_value_info("x", F, [1, columns])
    graph = helper.make_graph(nodes, "g", [given], [helper.make_tensor_value_info("y", F, [1, rows])], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    onnxtfl.onnx_to_tflite(data, check=False)  # what is imported and cached the first time
    tracemalloc.start()
    try:
        onnxtfl.onnx_to_tflite(data, check=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 7 * len(data)


@pytest.mark.parametrize(("type_", "half"), [(TensorProto.UINT4, 0), (TensorProto.INT4, 0), (TensorProto.UINT8, 8)])
@pytest.mark.parametrize("with_zero", [True, False])
def test_rows_of_a_table_of_blocks(type_: int, half: int, with_zero: bool) -> None:
    four_bit = TensorProto.UINT4 if type_ == TensorProto.UINT8 else type_
    table, s = integers(four_bit, 500, 64), scales(500, 2)
    zeros = integers(four_bit, 500, 2) if with_zero else np.full((500, 2), half)
    names = ["w", "x", "s"] + ["z"] * with_zero
    attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": 32, "domain": "com.microsoft"}
    node = helper.make_node("GatherBlockQuantized", names, ["y"], **attributes)
    stored = [packed("w", table, four_bit), packed("z", zeros, four_bit)]
    if type_ == TensorProto.UINT8:
        raw = (np.frombuffer(p.raw_data, np.uint8).reshape(500, -1) for p in stored)
        stored = [numpy_helper.from_array(r, n) for r, n in zip(raw, "wz", strict=True)]
    x = np.asarray([[3, 499], [0, -1]])
    y, ratio = converted(
        [node], x, [2, 2, 64], stored[0], numpy_helper.from_array(s, "s"), *stored[1:] if with_zero else []
    )
    wanted = (table - np.repeat(zeros, 32, 1)) * np.repeat(s, 32, 1)
    np.testing.assert_allclose(y, wanted[x], atol=1e-6)
    assert ratio < 1.35


@pytest.mark.parametrize("op", ["Gather", "DequantizeLinear"])
def test_rows_of_a_quantized_table_are_gathered_as_integers(op: str) -> None:
    table = integers(TensorProto.INT8, 500, 64)
    gather = helper.make_node("Gather", ["w", "x"] if op == "Gather" else ["r", "x"], ["g"])
    linear = helper.make_node("DequantizeLinear", ["g" if op == "Gather" else "w", "s", "z"], ["r"])
    nodes = [gather, linear] if op == "Gather" else [linear, gather]
    nodes.append(helper.make_node("Identity", ["r" if op == "Gather" else "g"], ["y"]))
    constants = (numpy_helper.from_array(np.asarray(v), n) for v, n in ((np.float32(0.5), "s"), (np.int8(3), "z")))
    y, ratio = converted(nodes, np.asarray([3, -1]), [2, 64], packed("w", table, TensorProto.INT8), *constants)
    np.testing.assert_array_equal(y, (table[[3, -1]] - 3) * np.float32(0.5))
    assert ratio < 1.1


@pytest.mark.parametrize("dtype", [DType.INT4, DType.UINT4, DType.UINT2])
def test_packed_elements(dtype: DType) -> None:
    low = -8 if dtype.is_signed else 0
    values = np.random.default_rng(0).integers(low, low + (1 << dtype.bits), (8, 12))
    data = ArrayData(values.astype(dtype.numpy), dtype)
    raw = ArrayData(np.concatenate(list(data.chunks())))
    fields = FieldData(raw, dtype, (8, 12))
    for axis in (0, 1):
        np.testing.assert_array_equal(fields.slab(axis, 2, 5).astype(int), values.take(range(2, 5), axis))
    stack, per = packed_bytes(data), 8 // dtype.bits
    assert stack is not None and stack.shape == (8 // per, 12)
    lowest = stack.numpy() & ((1 << dtype.bits) - 1)
    np.testing.assert_array_equal(lowest, values[: 8 // per] - low)
    np.testing.assert_array_equal(stack.slab(1, 3, 5), stack.numpy()[:, 3:5])
    rows = ByteData(data)
    np.testing.assert_array_equal(rows.numpy() & ((1 << dtype.bits) - 1), values[:, ::per] - low)
    np.testing.assert_array_equal(rows.slab(1, 1, 3), rows.numpy()[:, 1:3])
    assert packed_bytes(ArrayData(values[:1, :3].astype(dtype.numpy), dtype)) is None
