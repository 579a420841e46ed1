"""Steps of random graphs: convolutions and pools of one to three spatial axes, resize, depth-to-space."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.building import Builder


def _conv(b: Builder) -> None:
    x = b.pick(3, 4, 5)
    if not x:
        return
    _, channels, *sizes = b.shape(x)
    group = b.choose([1, 1, 1, channels, *(g for g in (2, 3) if channels % g == 0)])
    filters = group * b.choose([1, 2] if group > 1 else [1, 3, 4, 8])
    kernel = [min(b.choose([1, 2, 3, 3]), size) for size in sizes]
    dilations = [b.choose([1, 1, 2]) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, sizes, strict=True)]
    weight = b.weight(filters, channels // group, *kernel, scale=(channels // group * math.prod(kernel)) ** -0.5)
    inputs = [x, weight] + ([b.weight(filters)] if b.below(2) else [])
    strides = [b.choose([1, 1, 2, 3]) for _ in sizes]
    y = b.add("Conv", inputs, group=group, strides=strides, dilations=dilations, **_pads(b, kernel))
    if y:
        _maybe_normalize(b, y)


def _pads(b: Builder, kernel: list[int]) -> dict[str, Any]:
    kind = b.below(8)
    if kind == 0:
        return {"auto_pad": b.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    if kind < 4:
        return {"pads": [(k - 1) // 2 for k in kernel] * 2}
    return {"pads": [b.below(min(3, k + 1)) for k in kernel * 2]}


def _maybe_normalize(b: Builder, y: str) -> None:
    channels = b.shape(y)[1]
    if b.below(2):
        variance = b.constant(b.random.random(channels).astype(np.float32) + 0.5)
        mean = [b.weight(channels), b.weight(channels), b.weight(channels)]
        y = b.add("BatchNormalization", [y, *mean, variance])
    if b.below(2):
        y = b.add(b.choose(["Relu", "Sigmoid", "HardSwish"]), [y])
        if b.below(3) == 0:
            b.add("Clip", [y, b.constant(0.0, np.float32), b.constant(6.0, np.float32)])


def _conv_transpose(b: Builder) -> None:
    x = b.pick(3, 4, 5)
    if not x:
        return
    _, channels, *sizes = b.shape(x)
    group = b.choose([1, 1, 1, channels, *(g for g in (2, 3) if channels % g == 0)])
    filters = b.choose([1, 2, 3])
    kernel = [b.choose([1, 2, 3]) for _ in sizes]
    strides = [b.choose([1, 2, 2, 3]) for _ in sizes]
    attributes: dict[str, Any] = {"pads": [b.below((k + 1) // 2) for k in kernel * 2]}
    if not b.below(4):
        attributes["output_padding"] = [b.below(s) for s in strides]
    if not b.below(5):
        attributes["dilations"] = [b.choose([1, 2]) for _ in sizes]
    if not b.below(6):
        attributes = {"auto_pad": b.choose(["SAME_UPPER", "SAME_LOWER"])}
    scale = (channels // group * math.prod(kernel)) ** -0.5
    weight = b.weight(channels, filters, *kernel, scale=scale)
    inputs = [x, weight] + ([b.weight(filters * group)] if b.below(2) else [])
    b.add("ConvTranspose", inputs, group=group, strides=strides, **attributes)


def _pool(b: Builder) -> None:
    x = b.pick(3, 4, 5)
    if not x:
        return
    sizes = b.shape(x)[2:]
    kernel = [min(b.choose([1, 2, 3]), size) for size in sizes]
    strides = [b.choose([1, 2, 2, 3]) for _ in sizes]
    attributes: dict[str, Any] = {"pads": [b.below(min(2, k)) for k in kernel * 2]}
    if not b.below(5):
        attributes = {"auto_pad": b.choose(["SAME_UPPER", "SAME_LOWER", "VALID"])}
    elif not b.below(3) and not b.symbols:
        attributes["ceil_mode"] = 1
    op = b.choose(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"])
    if op == "AveragePool":
        attributes["count_include_pad"] = b.below(2)
    if op == "MaxPool" and "pads" in attributes and not b.below(4):
        attributes["dilations"] = [2 if 2 * k - 1 <= size else 1 for k, size in zip(kernel, sizes, strict=True)]
    if op == "LpPool":
        attributes = {"p": 2, "pads": attributes.get("pads", [0] * 2 * len(sizes))}
    b.add(op, [x], kernel_shape=kernel, strides=strides, **attributes)


def _global_pool(b: Builder) -> None:
    x = b.pick(3, 4, 5)
    if x:
        b.add(b.choose(["GlobalAveragePool", "GlobalMaxPool", "GlobalAveragePool"]), [x])


def _resize(b: Builder) -> None:
    x = b.pick(3, 4, 5)
    if not x:
        return
    n, channels, *sizes = b.shape(x)
    mode, how, near = b.choose([
        ("nearest", "asymmetric", "floor"), ("linear", "half_pixel", "floor"), ("linear", "align_corners", "floor"),
        ("nearest", "half_pixel", "round_prefer_floor"), ("linear", "asymmetric", "floor"),
        ("nearest", "asymmetric", "ceil"), ("linear", "pytorch_half_pixel", "floor"), ("cubic", "half_pixel", "floor"),
        ("nearest", "align_corners", "round_prefer_ceil"), ("cubic", "align_corners", "floor"),
    ])  # fmt: skip
    extra = {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": near}
    if mode == "cubic":
        extra["cubic_coeff_a"] = b.choose([-0.75, -0.5])
        if len(sizes) != 2:
            return
    if b.below(2):
        scales = b.constant([1, 1, *(b.choose([1, 2, 2, 1.5, 0.5, 3]) for _ in sizes)], np.float32)
        b.add("Resize", [x, "", scales], **extra)
    elif not b.symbols:
        wanted = b.ints(n, channels, *(b.choose([s, 2 * s, s + 1, 3]) for s in sizes))
        b.add("Resize", [x, "", "", wanted], **extra)


def _blocks(b: Builder) -> None:
    fitting = [name for name in b.values(4) if b.shape(name)[1] % 4 == 0]
    if fitting and b.below(2):
        b.add("DepthToSpace", [b.choose(fitting)], blocksize=2, mode=b.choose(["DCR", "CRD"]))
    if even := [name for name in b.values(4) if b.shape(name)[2] % 2 == b.shape(name)[3] % 2 == 0]:
        b.add("SpaceToDepth", [b.choose(even)], blocksize=2)


def _pixel_shuffle(b: Builder) -> None:
    """DepthToSpace as exporters decompose it."""
    fitting = [name for name in b.values(4) if b.shape(name)[1] % 4 == 0]
    if fitting and not b.symbols:
        x = b.choose(fitting)
        n, c, h, w = b.shape(x)
        y = b.add("Reshape", [x, b.ints(n, c // 4, 2, 2, h, w)])
        y = y and b.add("Transpose", [y], perm=[0, 1, 4, 2, 5, 3])
        if y:
            b.add("Reshape", [y, b.ints(n, c // 4, 2 * h, 2 * w)])


def _channel_shuffle(b: Builder) -> None:
    fitting = [name for name in b.values(4) if b.shape(name)[1] % 2 == 0]
    if fitting and not b.symbols:
        x = b.choose(fitting)
        n, c, h, w = b.shape(x)
        y = b.add("Reshape", [x, b.ints(n, 2, c // 2, h, w)])
        y = y and b.add("Transpose", [y], perm=[0, 2, 1, 3, 4])
        if y:
            b.add("Reshape", [y, b.ints(n, c, h, w)])


def _squeeze_excite(b: Builder) -> None:
    x = b.pick(4)
    if x:
        channels = b.shape(x)[1]
        y = b.add("GlobalAveragePool", [x])
        y = y and b.add("Conv", [y, b.weight(2, channels, 1, 1), b.weight(2)])
        y = y and b.add("Conv", [b.add("Relu", [y]), b.weight(channels, 2, 1, 1)])
        if y:
            b.add("Mul", [x, b.add("Sigmoid", [y])])


STEPS: tuple[Callable[[Builder], None], ...] = (
    _conv, _conv, _conv, _conv, _conv_transpose, _pool, _pool, _pool, _global_pool, _resize, _resize, _blocks,
    _pixel_shuffle, _channel_shuffle, _squeeze_excite,
)  # fmt: skip
