"""Windows over sizes known only at run time, and windows larger than the input: both runtimes compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxtfl import onnx_to_tflite
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import floats
from tests.unit.tiny_models import Array, onnx_model

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")


def check(op: str, sizes: list[tuple[int, ...]], open_: bool, kernel: Array | None = None, **attributes: Any) -> None:
    """One node over [1, 2, *sizes], converted once and run at each of the sizes."""
    names = [f"s{i}" for i in range(len(sizes[0]))] if open_ else sizes[0]
    results = ["y", "i"] if attributes.pop("indices", False) else ["y"]
    outputs = [(n, t, [None] * (len(names) + 2)) for n, t in zip(results, (1, 7), strict=False)]
    constants = {} if kernel is None else {"w": kernel}
    opset = attributes.pop("opset", 22)
    node = helper.make_node(op, ["x", *constants], results, **attributes)
    model = onnx_model([node], [("x", 1, [1, 2, *names])], outputs, constants, opset)
    data = onnx_to_tflite(model, check=False).data or b""
    for size in sizes:
        feeds = {"x": floats(1, 2, *size)}
        wanted = run_onnx(model.SerializeToString(), feeds)
        found = dict(run_tflite(data, feeds, kernels="builtin"))
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, strict=True)


_SIZES = [(7, 7), (6, 9)]
_CEIL = {"strides": [2, 2], "ceil_mode": 1, "kernel_shape": [3, 3]}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 0, 0, 1]}], ids=str)
def test_ceil_mode(op: str, attributes: Any) -> None:
    for sizes, open_ in ((_SIZES, True), (_SIZES[:1], False), (_SIZES[1:], False)):
        check(op, sizes, open_, **_CEIL, **attributes)
        if op == "AveragePool":
            check(op, sizes, open_, **_CEIL, **attributes, count_include_pad=1)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("lower", [False, True])
def test_same_padding_over_open_sizes(op: str, lower: bool) -> None:
    same = {"auto_pad": "SAME_LOWER" if lower else "SAME_UPPER", "strides": [2, 2]}
    check(op, _SIZES, True, kernel_shape=[3, 2], **same)
    check(op, _SIZES, True, kernel_shape=[3, 2], dilations=[2, 2], **same)
    check("LpPool", _SIZES, True, kernel_shape=[2, 1], auto_pad=same["auto_pad"], strides=[3, 3])


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_with_same_padding_before(rank: int) -> None:
    sizes, strides = [(7, 6, 5)[:rank], (6, 6, 8)[:rank]], [2] * rank
    check("Conv", sizes, True, floats(4, 2, *(3, 2, 4)[:rank]), auto_pad="SAME_LOWER", strides=strides)


def test_indices_of_the_largest_over_open_sizes() -> None:
    check("MaxPool", _SIZES, True, **_CEIL, pads=[1, 0, 1, 1], indices=True, storage_order=1)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("sizes", [(8, 6), (5, 7)])
def test_indices_where_same_padding_crops(auto_pad: str, order: int, sizes: tuple[int, int]) -> None:
    skips = {"kernel_shape": [1, 2], "strides": [4, 5], "auto_pad": auto_pad}
    for open_ in (False, True):
        check("MaxPool", [sizes], open_, indices=True, storage_order=order, **skips)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_larger_than_the_input(op: str) -> None:
    """ONNX Runtime computes it as a global pool, also without ceil_mode and with a dilation."""
    check(op, _SIZES, True, kernel_shape=[1280, 1280], strides=[1280, 1280], ceil_mode=1)
    for window in ({"kernel_shape": [9, 10], "strides": [5, 5]}, {"kernel_shape": [4, 4], "dilations": [3, 3]}):
        check(op, [(7, 7)], False, **{"strides": [9, 9], "pads": [0, 1, 0, 0], **window})
    if op == "AveragePool":
        larger = {"kernel_shape": [9, 10], "strides": [5, 5], "count_include_pad": 1}
        check(op, [(7, 7)], False, **larger)
        check(op, [(7, 7)], False, **larger, opset=11)


_LARGER = [{"auto_pad": "SAME_LOWER"}, {"auto_pad": "SAME_UPPER"}, {"pads": [1, 0, 0, 0]}]


@pytest.mark.parametrize("how", _LARGER, ids=str)
def test_a_dilated_window_larger_than_one_axis(how: Any) -> None:
    """SAME padding is that of the window without dilation; all but means read what negative padding leaves out."""
    window = {"kernel_shape": [3, 2], "strides": [5, 1], "dilations": [3, 3], **how}
    check("MaxPool", [(4, 6)], False, **window)
    check("AveragePool", [(4, 6)], False, **window)
    check("LpPool", [(4, 6)], False, **window)


def test_a_window_larger_than_the_one_axis_that_is_known() -> None:
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 4], strides=[1, 3])
    model = onnx_model([node], [("x", 1, [1, 2, "h", 2])], [("y", 1, None)], {}, 22)
    data, feeds = onnx_to_tflite(model, check=False).data or b"", {"x": floats(1, 2, 5, 2)}
    wanted = run_onnx(model.SerializeToString(), feeds)["y"]
    np.testing.assert_allclose(run_tflite(data, feeds)[0][1], wanted, rtol=1e-5)


def test_same_padding_does_not_read_ceil_mode() -> None:
    same = {"auto_pad": "SAME_LOWER", "ceil_mode": 1, "count_include_pad": 1}
    check("AveragePool", [(4, 2), (9, 1)], True, kernel_shape=[4, 3], strides=[4, 4], **same)


def test_padding_before_by_channels_over_an_open_size() -> None:
    """Padding that may crop keeps the sizes that are known: XNNPACK fails where it does not know the channels."""
    kernel = floats(3, 1, 3, 2)
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_LOWER", group=3, strides=[3, 3])
    model = onnx_model([node], [("x", 1, [2, 3, "h", 6])], [("y", 1, None)], {"w": kernel})
    made = onnx_to_tflite(model, check=False)
    assert "DEPTHWISE_CONV_2D" in made.report.ops_after and "ROUND" not in made.report.ops_after
    for size in (1, 2, 3, 4, 7):
        feed = {"x": floats(2, 3, size, 6)}
        for kernels in ("builtin", "default"):
            found = run_tflite(made.data or b"", feed, kernels=kernels)[0][1]
            np.testing.assert_allclose(found, run_onnx(model.SerializeToString(), feed)["y"], rtol=1e-5, atol=1e-6)
