"""The ops of the family transposed_convolution: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from tests.fuzz.both_ways import assert_converts_both_ways
from tests.unit.convolutions import check_convolution, check_preferred_layout, conv
from tests.unit.lifting import TFLITE, onnx_target
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert

_TRANSPOSED = [
    ((2, 4, 9), (4, 3, 3), conv(1, window_strides=(2,), padding=(1, 0))),
    ((2, 4, 5, 6), (4, 3, 3, 3), conv(2, window_strides=(2, 3), padding=(1, 0, -1, 1))),
    ((2, 4, 5, 6), (4, 3, 3, 2), conv(2, rhs_dilation=(2, 3))),
    ((2, 4, 5, 6), (4, 3, 4, 4), conv(2, feature_group_count=2, window_strides=(2, 2), padding=(0, 0, -1, -1))),
    ((2, 4, 5, 6), (4, 1, 3, 3), conv(2, feature_group_count=4, padding=(1, 1, 1, 1))),
    ((2, 3, 4, 3, 5), (3, 2, 2, 3, 2), conv(3, window_strides=(1, 2, 2), padding=(0, 0, 0, 0, -1, 0))),
    ((2, 4, 5, 6), (4, 3, 3, 3), conv(2, padding=(0, 0, -2, 1))),
]


@pytest.mark.parametrize(("x", "kernel", "attributes"), _TRANSPOSED)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(13)], ids=["tfl", "onnx"])
def test_in_every_form(x: Any, kernel: Any, attributes: Any, target: Any) -> None:
    check_convolution(ops.ConvTranspose, x, kernel, attributes, target)


@pytest.mark.parametrize(("x", "kernel", "attributes"), _TRANSPOSED)
@pytest.mark.parametrize("channels_last", [True, False])
def test_read_the_same_as_preferred(x: Any, kernel: Any, attributes: Any, channels_last: bool) -> None:
    check_preferred_layout(ops.ConvTranspose, x, kernel, attributes, channels_last)


@pytest.mark.parametrize(("padding", "height"), [("SAME", 5), ("SAME", 6), ("VALID", 8)])
def test_a_transposed_convolution_to_sizes_known_at_run_time(padding: str, height: int) -> None:
    """The kernel crops half of what the result has too much before it, and pads the end."""

    def build(g: TfliteGraph, open_axes: Sequence[int], computed: bool) -> Any:
        shape = np.asarray([1, height, 3, 2], np.int32)
        options = {"padding": padding, "stride_h": 2, "stride_w": 1}
        operands = [g.weight("float32", [2, 3, 1, 4]), g.given(SAMPLE[:1, :, None].repeat(3, 2), open_axes=open_axes)]
        sizes = g.choice(shape, share=1.0) if computed else g.constant(shape, "int32")
        return g.op("TRANSPOSE_CONV", [sizes, *operands, g.constant([1, 2], "float32")], "float32", **options)

    assert_same_as_litert(lambda g: build(g, [1, 2], False))
    assert_same_as_litert(lambda g: build(g, [], True))
    assert_same_as_litert(lambda g: build(g, [0, 1, 2], True))


def test_same_padding_with_a_stride_larger_than_the_kernel() -> None:
    assert_converts_both_ways(
        'g (float[1, 4, 6, 5] x) => (float y) { y = ConvTranspose <auto_pad = "SAME_UPPER", strides = [3, 1]> (x, w) }',
        {"w": (4, 2, 2, 2)},
    )


def test_a_transposed_convolution_after_a_convolution_over_open_sizes() -> None:
    assert_converts_both_ways(
        """g (float[1, 2, h, w] x) => (float y) {
            a = Conv <strides = [2, 1], pads = [0, 0, 1, 1]> (x, k)
            y = ConvTranspose <strides = [2, 2]> (a, k)
        }""",
        {"k": (2, 2, 1, 2)},
        [{"h": 5, "w": 6}, {"h": 6, "w": 9}],
    )
