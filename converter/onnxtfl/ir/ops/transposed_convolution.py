"""ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import half
from onnxtfl.ir.attributes import Axis
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, differ
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.op import Attributes
from onnxtfl.ir.ops.convolution import (
    DIMENSIONS,
    Convolution,
    channels_first,
    conv_window,
    finish,
    kernel_at,
    placed,
    spatial_sizes,
)
from onnxtfl.ir.spatial import Window, check_between, pad_spatial


class ConvTranspose(Convolution):
    """The gradient of a convolution: each input element adds its multiple of the kernel to the output.

    The full result has size stride * (n - 1) + span; `padding` crops it, negative padding makes it larger. The kernel's
    input feature axis meets the input's features; with groups, group g of it serves group g of the output.
    Source: ONNX ConvTranspose-11 (added: the spec says it as a Conv with lhs_dilation).
    """

    core = True
    multiplies = "windows"
    attributes = {
        **DIMENSIONS,
        "kernel_input_feature_dimension": Axis(0),
        "kernel_output_feature_dimension": Axis(1),
    }

    @classmethod
    def output_shape(cls, attributes: Attributes, x: Dims, w: Dims) -> Dims:
        features = w[attributes["kernel_output_feature_dimension"]] * attributes["feature_group_count"]
        depth, has = w[attributes["kernel_input_feature_dimension"]], x[attributes["input_feature_dimension"]]
        if differ(depth, has):
            raise ValueError(f"{has} input features, kernel for {depth}")
        sizes = transposed_sizes(spatial_sizes(attributes, "input", x), conv_window(attributes, w))
        return placed(attributes, x[attributes["input_batch_dimension"]], features, sizes)

    @staticmethod
    def compute(x: Array, w: Array, bias: Array | None, **attributes: Any) -> Array:
        image, kernel = channels_first(attributes, x, w)
        window, groups, sizes = conv_window(attributes, w.shape), attributes["feature_group_count"], image.shape[2:]
        full = [s * (n - 1) + span for s, n, span in zip(window.strides, sizes, window.span, strict=True)]
        check_between((groups, kernel.shape[0], image.shape[0], *full))
        result = np.zeros((groups, kernel.shape[0], image.shape[0], *full), image.dtype)
        columns = image.swapaxes(0, 1).reshape(groups, image.shape[1] // groups, -1)
        for tap in window.taps():
            rows = kernel_at(kernel, tap).reshape(kernel.shape[0], *columns.shape[:2]).swapaxes(0, 1)
            products, index = half.matmul(rows, columns), window.seen(tap, sizes)
            products = products.reshape(*products.shape[:2], image.shape[0], *sizes)
            result[index] = half.added(result[index], products)
        return finish(attributes, pad_spatial(result, [-p for p in window.explicit_padding], 0), bias)


def transposed_sizes(sizes: Sequence[Dim], window: Window) -> tuple[Dim, ...]:
    """Spatial sizes of a ConvTranspose's result."""
    return tuple(
        window.strides[i] * (size - 1) + window.span[i] - window.before[i] - window.after[i]
        for i, size in enumerate(sizes)
    )
