"""Quantized ops whose scales integer kernels do not compute: they are computed in float, others stay integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import onnxtfl
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import tensor
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.onnx_nodes import named_node, onnx_file
from tests.unit.tflite_files import int8_type, tflite_file
from tests.unit.tiny_models import onnx_model

TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}
SHAPES: dict[str, tuple[list[int], list[int]]] = {
    "Add": ([4, 6], [4, 6]),
    "Mul": ([4, 6], [4, 6]),
    "MatMul": ([4, 16], [16, 6]),
    "Conv": ([1, 4, 5, 5], [3, 4, 2, 2]),
    "Softmax": ([4, 6], []),
}


def quantized(op: str, dtype: str, scales: tuple[float, float, float]) -> tuple[bytes, dict[str, Array]]:
    """`op` between DequantizeLinear and QuantizeLinear with these scales, and inputs; Conv has a constant filter."""
    numpy, zero = np.dtype(dtype), np.asarray(128 if dtype == "uint8" else 0, dtype)
    low, high = np.iinfo(numpy).min, np.iinfo(numpy).max
    rng, shapes = np.random.default_rng(0), [shape for shape in SHAPES[op] if shape]
    x, *rest = (rng.integers(low, high + 1, shape).astype(numpy) for shape in shapes)
    x.reshape(-1)[:5] = zero + np.arange(5).astype(numpy)
    weights = [np.clip(w.astype(np.int64), -127, 127).astype(np.int8) if op == "Conv" else w for w in rest]
    constants: dict[str, Array] = {f"s{i}": np.asarray(s, np.float32) for i, s in enumerate(scales)} | {"z": zero}
    nodes = [helper.make_node("DequantizeLinear", ["x", "s0", "z"], ["a"])]
    if weights:
        constants["wz"] = np.asarray(0, np.int8) if op == "Conv" else zero
        nodes.append(helper.make_node("DequantizeLinear", ["w", "s1", "wz"], ["b"]))
    nodes.append(helper.make_node(op, ["a", "b"][: 1 + len(weights)], ["c"]))
    nodes.append(helper.make_node("QuantizeLinear", ["c", "s2", "z"], ["y"]))
    inputs: list[Any] = [("x", TYPES[dtype], shapes[0])]
    feed = {"x": x}
    if op == "Conv":
        constants["w"] = weights[0]
    elif weights:
        inputs.append(("w", TYPES[dtype], shapes[1]))
        feed["w"] = weights[0]
    model = onnx_model(nodes, inputs, [("y", TYPES[dtype], None)], constants, 21)
    model.ir_version = 10
    return model.SerializeToString(), feed


def on_integers(op: str, dtype: str, scales: tuple[float, float, float]) -> bool:
    """Whether the integer kernel is written; the result is right to a step either way."""
    return agrees_on_integers(*quantized(op, dtype, scales))


def agrees_on_integers(data: bytes, feed: dict[str, Array]) -> bool:
    """Whether no op of the conversion is real; results are right to a step either way."""
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    wanted = run_onnx(data, feed, optimized=False)["y"].astype(np.int64)
    for kernels in ("default", "builtin"):
        found = run_tflite(conversion.data or b"", feed, kernels=kernels)[0][1].astype(np.int64)
        assert np.abs(found - wanted).max() <= 1
    return "DEQUANTIZE" not in conversion.report.ops_after


@pytest.mark.parametrize("scale", [1e-4, 3e-4, 1.0, 1e5, 1e34])
def test_softmax_of_int16(scale: float) -> None:
    """The kernel takes exp(-10) for all that is further below the largest, and is 20 steps off for 16 elements.

    A mask of the lowest float makes the scale 1e34.
    """
    assert not on_integers("Softmax", "int16", (scale, 1.0, 1 / 32768))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_sums_far_beyond_the_result(dtype: str) -> None:
    """LiteRT's int8 ADD wraps around from 256 steps of the result for one of the operand on."""
    assert not on_integers("Add", dtype, (1.0, 300.0, 1.0))
    assert on_integers("Add", dtype, (0.1, 0.2, 0.15))


@pytest.mark.parametrize(
    ("op", "dtype", "factor"),
    [
        ("Mul", "int8", 1e6),
        ("Mul", "uint8", 1e6),
        ("Mul", "int16", 4.0),
        ("MatMul", "int16", 4.0),
        ("Conv", "int8", 300.0),
    ],
)
def test_products_far_beyond_the_result(op: str, dtype: str, factor: float) -> None:
    """Sums shifted to the left left int32; XNNPACK did not load a convolution whose result has such small steps."""
    assert not on_integers(op, dtype, (1e-2, 1e-2, 1e-4 / factor))
    assert on_integers(op, dtype, (1e-2, 1e-2, 0.5))


def of_two(op: str, dtype: str, scales: tuple[float, ...], zeros: tuple[int, ...], rhs: Array | None) -> bytes:
    """`op` on x [4, 6] and `rhs` (None: unary) with the scales and zero points of x, rhs and the result."""
    numpy = np.dtype(dtype)
    constants: dict[str, Array] = {f"s{i}": np.asarray(s, np.float32) for i, s in enumerate(scales)}
    constants |= {f"z{i}": np.asarray(z, numpy) for i, z in enumerate(zeros)}
    nodes = [helper.make_node("DequantizeLinear", ["x", "s0", "z0"], ["a"])]
    if rhs is not None:
        constants["w"] = rhs.astype(numpy)
        nodes.append(helper.make_node("DequantizeLinear", ["w", "s1", "z1"], ["b"]))
    nodes.append(helper.make_node(op, ["a"] if rhs is None else ["a", "b"], ["c"]))
    nodes.append(helper.make_node("QuantizeLinear", ["c", "s2", "z2"], ["y"]))
    model = onnx_model(nodes, [("x", TYPES[dtype], [4, 6])], [("y", TYPES[dtype], None)], constants, 21)
    model.ir_version = 10
    return model.SerializeToString()


def computes_on_integers(data: bytes, dtype: str) -> bool:
    """The same on 24 integers from the lowest to the highest."""
    limits = np.iinfo(dtype)
    return agrees_on_integers(data, {"x": np.linspace(limits.min, limits.max, 24).astype(dtype).reshape(4, 6)})


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("ratio", "integers"), [(0.4, True), (0.6, False), (1e3, False)])
def test_products_are_packed_before_the_zero_point_is_added(dtype: str, ratio: float, integers: bool) -> None:
    """LiteRT's 8-bit MUL wraps around: 32767 + 127 became the lowest integer."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    data = of_two("Mul", dtype, (0.1, 0.1, 1e-2 / ratio), (low, low, high), np.full((4, 6), high))
    assert computes_on_integers(data, dtype) == integers


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("operand", ["vector", "matrix"])
def test_a_maximum_in_other_steps_than_its_operand(dtype: str, operand: str) -> None:
    """REDUCE_MAX copies integers, or refuses other scales."""
    shape, zero, numpy = [6] if operand == "vector" else [4, 6], 0 if dtype == "int16" else 7, np.dtype(dtype)
    constants: dict[str, Array] = {name: np.asarray(s, np.float32) for name, s in (("s", 0.5), ("t", 0.75))}
    constants |= {"z": np.asarray(zero, numpy), "axes": np.asarray([-1], np.int64)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("ReduceMax", ["a", "axes"], ["m"], keepdims=0),
        helper.make_node("QuantizeLinear", ["m", "t", "z"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", TYPES[dtype], shape)], [("y", TYPES[dtype], None)], constants, 21)
    model.ir_version = 10
    x = np.arange(np.prod(shape)).astype(numpy).reshape(shape)
    assert agrees_on_integers(model.SerializeToString(), {"x": x})


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize(("op", "step"), [("Add", 1.0), ("Sub", 1.0), ("Add", 1e6)])
def test_zeros_of_any_scale_are_added_on_integers(dtype: str, op: str, step: float) -> None:
    """Quantizers give a bias of zeros the scale 1; sums with it are nothing but other steps."""
    zero = 0 if dtype == "int16" else 7
    zeros = np.full(6, zero)
    assert computes_on_integers(of_two(op, dtype, (0.02, step, 1e-2), (0, zero, 0), zeros), dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_masks_of_the_lowest_float_are_added_in_float(dtype: str) -> None:
    """Integer kernels multiply by the ratio of the scales, which beside such steps is none."""
    high = np.iinfo(dtype).max
    zero = 0 if dtype == "int16" else high
    mask = np.asarray([[zero], [zero], [np.iinfo(dtype).min], [zero]])
    assert not computes_on_integers(of_two("Add", dtype, (0.02, 1e34, 1e34), (0, zero, zero), mask), dtype)


def test_a_mask_that_some_scores_change_is_added() -> None:
    """Steps of the mask that are not larger than a score by far."""
    mask = np.asarray([[127], [127], [-128], [127]])
    assert computes_on_integers(of_two("Add", "int8", (0.02, 1.0, 1.0), (0, 127, 127), mask), "int8")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("step", [0.02, 0.011, 3.0])
def test_negated_integers(dtype: str, step: float) -> None:
    """NEG has no integer kernel in TensorFlow Lite 2.14."""
    zeros = (0, 0, 0) if dtype == "int16" else (5, 0, 100)
    assert computes_on_integers(of_two("Neg", dtype, (0.02, 1.0, step), zeros, None), dtype)


def test_products_with_zeros_are_not_added() -> None:
    """A layer scale of zeros, as a network before its training has it: 0 * x has the scale 1, and x the result's."""
    numpy = np.dtype(np.int8)
    parts = {"a": (0.02, 0), "g": (1.0, 0), "m": (1.0, -128), "y": (0.02, 0)}
    constants: dict[str, Array] = {f"{name}_s": np.asarray(scale, np.float32) for name, (scale, _) in parts.items()}
    constants |= {f"{name}_z": np.asarray(zero, numpy) for name, (_, zero) in parts.items()}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "a_s", "a_z"], ["a"]),
        helper.make_node("DequantizeLinear", ["gamma", "g_s", "g_z"], ["g"]),
        helper.make_node("Mul", ["a", "g"], ["m"]),
        helper.make_node("QuantizeLinear", ["m", "m_s", "m_z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "m_s", "m_z"], ["md"]),
        helper.make_node("Add", ["a", "md"], ["s"]),
        helper.make_node("QuantizeLinear", ["s", "y_s", "y_z"], ["y"]),
    ]
    constants["gamma"] = np.zeros(6, numpy)
    ends = [("x", TensorProto.INT8, [4, 6])], [("y", TensorProto.INT8, None)]
    model = onnx_model(nodes, *ends, constants, 21)
    model.ir_version = 10
    assert computes_on_integers(model.SerializeToString(), "int8")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize(("finer", "integers"), [(1e3, True), (1e8, False), (1e20, False), (1e-20, True)])
def test_requantized_to_far_finer_steps(dtype: str, finer: float, integers: bool) -> None:
    """QUANTIZE shifts integers to the left, out of int32, before it saturates: 5 became -128."""
    zero = 0 if dtype == "int16" else 7
    numpy = np.dtype(dtype)
    constants = {"s": np.asarray(1.3, np.float32), "t": np.asarray(1.3 / finer, np.float32)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("QuantizeLinear", ["a", "t", "z"], ["y"]),
    ]
    constants["z"] = np.asarray(zero, numpy)
    model = onnx_model(nodes, [("x", TYPES[dtype], [4, 6])], [("y", TYPES[dtype], None)], constants, 21)
    model.ir_version = 10
    assert computes_on_integers(model.SerializeToString(), dtype) == integers


F = np.float32


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("scale", [5.8e-10, 1e-9, 1e-3])
def test_inputs_saturate_in_tiny_steps(dtype: str, scale: float) -> None:
    """QUANTIZE computes integers in 32 bits: 3 in steps of 6e-10 became the lowest one."""
    model = onnx_model(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])],
        [("x", TensorProto.FLOAT, [6])],
        [("q", TYPES[dtype], None)],
        {"s": F(scale), "z": np.asarray(0, dtype)},
        21,
    )
    model.ir_version = 10
    data, feed = model.SerializeToString(), {"x": np.asarray([-900, -3, -1, 1, 3, 900], np.float32)}
    conversion = onnxtfl.onnx_to_tflite(data, check=False)
    np.testing.assert_array_equal(run_tflite(conversion.data or b"", feed)[0][1], run_onnx(data, feed)["q"])
    assert ("MINIMUM" in conversion.report.ops_after) == (scale < 1e-6)


@pytest.mark.parametrize("op", ["e = Exp (a)", "e = Pow (a, six)"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_exponentials_and_powers_saturate(dtype: str, op: str) -> None:
    """exp(36) and 36 ** 6 in steps of 0.001 have more than 32 bits: QUANTIZE made them the lowest integer."""
    most = np.iinfo(dtype).max
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g ({dtype}[4] x) => ({dtype}[4] y)
      <{dtype} z = {{0}}, float s = {{{36.0 / most}}}, float t = {{0.001}}, float six = {{6}}> {{
        a = DequantizeLinear (x, s, z)  {op}  y = QuantizeLinear (e, t, z)
    }}"""
    data = parser.parse_model(text).SerializeToString()
    agrees_on_integers(data, {"x": np.asarray([0, 1, most // 2, most], dtype)})


@pytest.mark.parametrize("scale, zero_point", [(0.5, 300), (0.5, 2**40), (float("nan"), 0)])
def test_quantization_that_no_runtime_computes_with(scale: float, zero_point: int) -> None:
    """ONNX cannot store such a zero point: a wrapped one would be wrong in silence."""
    type_ = tensor("float32", 4).stored_as(Quantization("int8", (scale,), (zero_point,)))
    with pytest.raises(onnxtfl.InvalidModelError, match="is out of range"):
        onnxtfl.tflite_to_onnx(tflite_file("NEG", [type_], type_), check=False)


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_scales_that_are_not_positive_are_refused(scale: float) -> None:
    data = tflite_file("ABS", [int8_type((2, 4))], int8_type((2, 4), scale))
    with pytest.raises(onnxtfl.UnsupportedError, match="is not positive"):
        onnxtfl.tflite_to_onnx(data, check=False)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_scales_that_are_not_finite_are_refused(scale: float) -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="is out of range"):
        onnxtfl.tflite_to_onnx(
            tflite_file("ABS", [int8_type((2, 4))], int8_type((2, 4), scale)), check=False, load=False
        )


def test_subnormal_scales_are_refused_in_both_directions() -> None:
    steps = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), named_node("DequantizeLinear", "q s z")]
    data = onnx_file(steps, [2], {"s": F(4.6e-41), "z": np.int8(0)})
    with pytest.raises(onnxtfl.UnsupportedError, match="out of the kernel's range"):
        onnxtfl.onnx_to_tflite(data, check=False)
    given, declared = int8_type((2, 4)), int8_type((2, 4), 4.6e-41)
    with pytest.raises(onnxtfl.UnsupportedError, match="out of the kernel's range"):
        onnxtfl.tflite_to_onnx(tflite_file("ABS", [given], declared), check=False)


LOWEST = [("int8", 127, 0), ("uint8", 255, 255), ("uint16", 65535, 65535)]


@pytest.mark.parametrize(("storage", "count", "zero"), LOWEST)
@pytest.mark.parametrize("form", ["QDQ", "QLinearMul"])
def test_masks_of_the_lowest_float(storage: str, count: int, zero: int, form: str) -> None:
    """The lowest float as an integer times a scale is -infinity: times 0 it is NaN, which QuantizeLinear makes the
    lowest integer; QLinearMul multiplies the integers first, and has 0."""
    if form == "QLinearMul" and storage == "uint16":
        pytest.skip("no such op")
    low = -count if storage == "int8" else 0
    body = "q = com.microsoft.QLinearMul (xq, s, z, c, h, cz, s, z)"
    if form == "QDQ":
        body = "d = DequantizeLinear (c, h, cz)  m = Mul (xd, d)  q = QuantizeLinear (m, s, z)"
    text = f"""<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[4] x) => (float[4] p, float[4] y)
      <float s = {{1}}, {storage} z = {{5}}, {storage} c = {{{low}}}, {storage} cz = {{{zero}}}, float h = {{1}}> {{
        xq = QuantizeLinear (x, s, z)  xd = DequantizeLinear (xq, s, z)  p = Identity (xd)
        {body}  y = DequantizeLinear (q, s, z) }}"""
    model = parser.parse_model(text)
    lowest = np.nextafter(np.float32(np.finfo(np.float32).max / count), np.float32(np.inf))
    model.graph.initializer[4].CopyFrom(numpy_helper.from_array(lowest, "h"))
    x = np.asarray([0, 1, 0, 2], np.float32)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    wanted = run_onnx(model.SerializeToString(), {"x": x}, optimized=False)["y"]
    for kernels in ("default", "builtin"):
        np.testing.assert_array_equal(run_tflite(conversion.data or b"", [x], kernels=kernels)[1][1], wanted)
