"""What TFLite's kernels compute on tensors without a scale, with several, with unequal or extreme scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.fuzz.test_tflite_found import Graph, check
from tests.fuzz.tflite_drawing import Op, Scale

INTEGERS = np.arange(-128, 128, 5)


def _given(g: Graph, elements: Any, dtype: str, scale: Sequence[float] = (), zero: int = 0, axis: int = 0) -> str:
    """An input of these integers, with this scale (those along `axis`)."""
    name = g.given(elements, dtype)
    if scale:
        g.quantized[name] = Scale(tuple(float(np.float32(s)) for s in scale), (zero,) * len(scale), axis)
    return name


def _refused(op: str, operands: Sequence[tuple[Any, str, Sequence[float]]], **options: Any) -> str:
    """The message for one op on inputs (elements, dtype, scales); it is not run."""
    g = Graph(0)
    g.rankless = False
    names = [_given(g, elements, dtype, scale) for elements, dtype, scale in operands]
    dtype = options.pop("result", operands[0][1])
    g.ops.append(Op(op, names, ["v0_0"], options))
    g.arrays["v0_0"] = np.zeros(np.broadcast_shapes(*(np.shape(o[0]) for o in operands)), dtype)
    if operands[0][2] and dtype != "bool":
        g.quantized["v0_0"] = Scale((0.1,))
    with pytest.raises(UnsupportedError) as caught:
        onnxtfl.tflite_to_onnx(g.model(), check=False, load=False)
    return str(caught.value)


@pytest.mark.parametrize("direction", ["EQUAL", "NOT_EQUAL", "LESS", "GREATER_EQUAL"])
@pytest.mark.parametrize("scales", [(0.05, 0.07), (0.001, 0.001), (0.002, 0.001), (0.6, 0.01), (1e-10, 1e-9)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_comparisons_are_in_units_of_1_256(dtype: str, scales: tuple[float, float], direction: str) -> None:
    low = 0 if dtype != "uint8" else 128
    lhs, rhs = (INTEGERS + low)[:, None], (INTEGERS + low + (INTEGERS % 3))[None]

    def build(g: Graph) -> Any:
        zero = 0 if dtype == "int16" else 3
        operands = [_given(g, v.clip(0 if low else -128, 255 if low else 127), dtype, (s,), zero) for v, s in
                    zip((lhs, rhs), scales, strict=True)]  # fmt: skip
        return g.op(direction, operands, "bool")

    check(build)


def test_comparisons_that_end_the_process_are_refused() -> None:
    for dtype, scale in (("int8", ()), ("uint8", ()), ("int8", (1.0,)), ("int16", (2.0,))):
        operands = [([1, 2], dtype, scale), ([1, 3], dtype, scale)]
        assert "one scale between 0 and 1" in _refused("EQUAL", operands, result="bool")
    assert "one scale" in _refused("NOT_EQUAL", [([1], "int16", ()), ([2], "int16", ())], result="bool")


@pytest.mark.parametrize("op", ["RELU", "RELU6", "LEAKY_RELU", "DEQUANTIZE"])
def test_a_kernel_that_reads_a_scale_refuses_integers_without(op: str) -> None:
    result = {"result": "float32"} if op == "DEQUANTIZE" else {}
    assert "this tensor has no scale" in _refused(op, [([1, 2], "uint8", ())], **result)


@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL", "DIV", "PRELU"])
def test_a_kernel_of_one_scale_refuses_several(op: str) -> None:
    operands = [([[1, 2]], "int8", (0.1,)), ([[3, 4]], "int8", (0.1, 0.2))]
    found = _refused(op, [operands[0], (np.asarray([[3], [4]]), "int8", (0.1, 0.2))])
    assert "reads one scale, and this tensor has 2" in found


def test_a_product_of_scales_that_overflows_is_refused() -> None:
    for scales in ((1e20, 1e20), (1e-30, 1e-30), (1e19, 1e19)):
        found = _refused("MUL", [([1], "int8", (s,)) for s in scales])
        assert "product of the scales" in found


def test_a_product_of_which_all_integers_are_nothing() -> None:
    """A scale of 1e-35 that a quantizer made of a part that is always 0: the kernel may write any integer."""
    g = Graph(0)
    x = _given(g, [1, 255], "uint8", (0.02,))
    g.ops.append(Op("MUL", [x, x], ["v0_0"], {"fused_activation_function": "NONE"}))
    g.arrays["v0_0"] = np.zeros(2, "uint8")
    g.quantized["v0_0"] = Scale((1e-35,))
    assert onnxtfl.tflite_to_onnx(g.model(), check=False, load=False).data


def test_int16_slopes_are_refused_and_int8_slopes_are_read() -> None:
    assert "as int8" in _refused("PRELU", [([1, -2], "int16", (0.1,)), ([1, 2], "int16", (0.1,))])

    def build(g: Graph) -> Any:
        g.quantized["v0_0"] = Scale((0.25,))
        return g.op("PRELU", [_given(g, [[-80, 40]], "int16", (0.5,)), _given(g, [[4, 3]], "int8", (0.5,))], "int16")

    check(build)


@pytest.mark.parametrize("op", ["MAXIMUM", "MINIMUM"])
def test_the_larger_stored_integer_of_other_scales(op: str) -> None:
    def build(g: Graph) -> Any:
        g.quantized["v0_0"] = Scale((0.3,), (4,))
        operands = [_given(g, v, "int8", (s,), 3) for v, s in ((INTEGERS, 0.1), (INTEGERS[::-1], 0.2))]
        return g.op(op, operands, "int8")

    check(build)


@pytest.mark.parametrize("ways", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(("dtype", "scale"), [("int16", (0.1,)), ("int16", ()), ("int8", ()), ("uint8", ())])
def test_bilinear_means_of_integers(dtype: str, scale: tuple[float, ...], ways: tuple[bool, bool]) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max + 1, (1, 3, 4, 2))

    def build(g: Graph) -> Any:
        if scale:
            g.quantized["v0_0"] = Scale((float(np.float32(0.1)),))
        operands = [_given(g, x, dtype, scale), g.constant([5, 7], "int32")]
        return g.op("RESIZE_BILINEAR", operands, dtype, align_corners=ways[0], half_pixel_centers=ways[1])

    check(build)


@pytest.mark.parametrize("size", [1, 2])
def test_softmax_over_one_element(size: int) -> None:
    def build(g: Graph) -> Any:
        g.quantized["v0_0"] = Scale((1 / 256,))
        return g.op("SOFTMAX", [_given(g, np.arange(2 * size).reshape(2, size), "uint8", (0.1,))], "uint8", beta=1.0)

    check(build)


def test_diagonals_of_which_one_byte_is_moved_are_refused() -> None:
    assert "does not move whole elements" in _refused("MATRIX_DIAG", [([1, 2], "float16", ())])


def test_a_spectrum_of_columns_of_one_element_is_refused() -> None:
    g = Graph(0)
    g.rankless = False
    inputs = [g.given(np.ones((4, 3))), g.constant([4, 1], "int32")]
    g.ops.append(Op("RFFT2D", inputs, ["v0_0"], {}))
    g.arrays["v0_0"] = np.zeros((4, 1), np.complex64)
    with pytest.raises(UnsupportedError, match="columns of one element"):
        onnxtfl.tflite_to_onnx(g.model(), check=False, load=False)
