"""The ops of the family convolution: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.types import tensor
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.convolutions import check_convolution, check_preferred_layout, conv
from tests.unit.lifting import TFLITE, floats, onnx_target
from tests.unit.tiny_models import onnx_model

_CONVS = [
    ((2, 3, 9), (4, 3, 3), conv(1, padding=(1, 2), window_strides=(2,))),
    ((2, 3, 9, 8), (4, 3, 3, 3), conv(2, padding=(1, 1, 1, 1))),
    ((2, 3, 9, 8), (4, 3, 3, 3), conv(2, padding=(1, 0, 2, 1), window_strides=(2, 3), rhs_dilation=(1, 2))),
    ((2, 4, 9, 8), (8, 1, 3, 3), conv(2, feature_group_count=4, padding=(0, 1, 0, 0))),
    ((2, 4, 9, 8), (6, 2, 3, 3), conv(2, feature_group_count=2)),
    ((2, 4, 5, 6, 7), (6, 2, 2, 3, 2), conv(3, feature_group_count=2, padding=(1, 1, 1, 0, 0, 0))),
    ((1, 2, 7, 8), (3, 2, 3, 3), conv(2, auto_pad="SAME_UPPER", window_strides=(2, 2))),
]


@pytest.mark.parametrize(("x", "kernel", "attributes"), _CONVS)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(13)], ids=["tfl", "onnx"])
def test_in_every_form(x: Any, kernel: Any, attributes: Any, target: Any) -> None:
    check_convolution(ops.Conv, x, kernel, attributes, target)


@pytest.mark.parametrize(("x", "kernel", "attributes"), _CONVS)
@pytest.mark.parametrize("channels_last", [True, False])
def test_read_the_same_as_preferred(x: Any, kernel: Any, attributes: Any, channels_last: bool) -> None:
    check_preferred_layout(ops.Conv, x, kernel, attributes, channels_last)


def test_open_sizes_keep_their_symbols() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 3, "h", "w"))
    kernel = constant(floats(8, 3, 3, 3))
    attributes = conv(2, padding=(1, 1, 1, 1), window_strides=(2, 1))
    result = Builder(graph)(ops.Conv, x, kernel, None, **attributes)
    assert str(result.type) == "tensor<[n]x8x[(h - 1)//2 + 1]x[w]xfloat32>"


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 4), (1, 8), (2, 5), (3, 7), (3, 4)])
@pytest.mark.parametrize("is_open", [False, True])
def test_same_padding_of_strides_over_the_window(auto_pad: str, kernel: int, stride: int, is_open: bool) -> None:
    """Where the padding is negative ONNX Runtime begins later; the ONNX model of the result computes the same."""
    weights = {"w": floats(3, 2, kernel)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=auto_pad, strides=[stride])

    def model(size: int | str) -> onnx.ModelProto:
        return onnx_model([node], [("x", TensorProto.FLOAT, [1, 2, size])], [("y", TensorProto.FLOAT, None)], weights)

    def converted(size: int | str) -> tuple[bytes, bytes]:
        made = onnxtfl.onnx_to_tflite(model(size), check=False).data or b""
        return made, onnxtfl.tflite_to_onnx(made, check=False).data or b""

    once = converted("n") if is_open else None
    for size in range(stride, 2 * stride + 1):
        x = floats(1, 2, size)
        wanted = run_onnx(model("n").SerializeToString(), {"x": x})["y"]
        made, back = once or converted(size)
        np.testing.assert_allclose(run_tflite(made, {"x": x})[0][1], wanted, atol=1e-5)
        np.testing.assert_allclose(run_onnx(back, {"x": x})["y"], wanted, atol=1e-5)
