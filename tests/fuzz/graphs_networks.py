"""Convolutions, pools, resizing, recurrent layers and the like for random ONNX graphs: each adds a node, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.drawing import FLOATS
from tests.fuzz.graphs_onnx import Drawing

Step = Callable[[Drawing], Any]


def window_of(g: Drawing, sizes: Sequence[int], dilate: bool = True) -> dict[str, Any]:
    """Attributes of a window over spatial axes of these sizes."""
    kernel = [1 + g.below(min(max(size, 1), 3)) for size in sizes]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [g.choose((1, 1, 2, 3)) for _ in sizes]}
    if dilate and g.chance(0.25):
        fitting = [[d for d in (1, 2) if (k - 1) * d < max(n, 1)] for k, n in zip(kernel, sizes, strict=True)]
        found["dilations"] = [g.choose(each) for each in fitting]
    way = g.below(4)
    if way == 0:
        found["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif way == 1:
        found["pads"] = [g.below(k) for k in (*kernel, *kernel)]
    return found


def _image(g: Drawing, dtypes: Sequence[str] = ("float32",), ranks: Sequence[int] = (3, 4, 4, 4, 5)) -> str:
    return g.value(dtypes, ranks)


def _conv(g: Drawing) -> None:
    x = _image(g, FLOATS)
    channels = g.array(x).shape[1]
    groups = g.choose([n for n in (1, 1, 2, 3, channels) if n and channels % n == 0] or [1])
    window = window_of(g, g.array(x).shape[2:])
    outputs = groups * g.choose((1, 1, 2))
    dtype = str(g.array(x).dtype)
    weight = g.weight(dtype, [outputs, channels // groups, *window["kernel_shape"]], -1, 1)
    g.node("Conv", [x, weight, *([g.weight(dtype, [outputs])] if g.below(2) else [])], group=groups, **window)


def _conv_transpose(g: Drawing) -> None:
    x = _image(g)
    channels = g.array(x).shape[1]
    groups = g.choose([n for n in (1, 1, 2, channels) if n and channels % n == 0] or [1])
    window = window_of(g, g.array(x).shape[2:])
    if "auto_pad" not in window and g.chance(0.3):
        window["output_padding"] = [g.below(s) for s in window["strides"]]
    per_group = 1 + g.below(3)
    weight = g.weight("float32", [channels, per_group, *window["kernel_shape"]], -1, 1)
    bias = [g.weight("float32", [groups * per_group])] if g.below(2) else []
    g.node("ConvTranspose", [x, weight, *bias], group=groups, **window)


def _pool(op: str) -> Step:
    def step(g: Drawing) -> None:
        x = _image(g, FLOATS if op != "LpPool" else ("float32",))
        window = window_of(g, g.array(x).shape[2:], dilate=op == "MaxPool" or g.opset >= 19)
        if op != "LpPool" or g.opset >= 18:
            window["ceil_mode"] = int(g.chance(0.3) and "auto_pad" not in window)
        if op == "AveragePool":
            window["count_include_pad"] = g.below(2)
        g.node(op, [x], 1 + int(op == "MaxPool" and g.chance(0.2)), **window)

    return step


def _global_pool(op: str) -> Step:
    return lambda g: g.node(op, [_image(g)])


def _resize(g: Drawing) -> None:
    x = g.value(("float32", "float32", "uint8", "int8", "int32"), (2, 3, 4, 4, 5))
    rank = g.rank(x)
    kept = min(2, rank - 1) if g.chance(0.9) else 0
    mode = g.choose(("nearest", "linear", "linear", "cubic"))
    attributes = {"mode": mode, "coordinate_transformation_mode": g.choose(
        ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    )}  # fmt: skip
    if mode == "nearest":
        attributes["nearest_mode"] = g.choose(("floor", "round_prefer_floor", "ceil"))
    if g.below(2):
        scales = [1.0] * kept + [g.choose((0.5, 2.0, 1.0, 1.5)) for _ in range(rank - kept)]
        g.node("Resize", [x, "", g.constant(scales, np.float32)], **attributes)
    elif mode != "linear" or g.array(x).dtype.kind == "f" or not g.open:
        # ONNX Runtime rounds integers by another formula where an open side happens to keep its size
        sizes = [*g.array(x).shape[:kept], *(g.size() for _ in range(rank - kept))]
        g.node("Resize", [x, "", "", g.constant(sizes, np.int64)], **attributes)


def _grid_sample(g: Drawing) -> None:
    x = _image(g, ranks=(4,))
    grid = g.new("float32", [g.array(x).shape[0], g.size(), g.size(), 2], -1.2, 1.2)
    mode = g.choose(("bilinear", "nearest")) if g.opset < 20 else g.choose(("linear", "nearest"))
    padding = g.choose(("zeros", "border"))
    g.node("GridSample", [x, grid], mode=mode, padding_mode=padding, align_corners=g.below(2))


def _affine_grid(g: Drawing) -> None:
    theta = g.weight("float32", [2, 2, 3], -1, 1)
    g.node("AffineGrid", [theta, g.constant([2, 3, 1 + g.below(4), 2], np.int64)], align_corners=g.below(2))


def _roi_align(g: Drawing) -> None:
    x = g.weight("float32", (1 + g.below(2), g.size(), 4 + g.below(4), 5))
    boxes = g.constant(np.array([[0, 0, 2, 3], [0.5, 1, 3, 4]], np.float32))
    batch = g.constant([0, g.array(x).shape[0] - 1], np.int64)
    g.node("RoiAlign", [x, boxes, batch], output_height=2, output_width=2, sampling_ratio=g.choose((1, 2)))


def _unpool(g: Drawing) -> None:
    x = g.weight("float32", (1, g.size(), 4, 6))
    if pooled := g.node("MaxPool", [x], 2, kernel_shape=[2, 2], strides=[2, 2]):
        g.node("MaxUnpool", pooled, kernel_shape=[2, 2], strides=[2, 2])


def _recurrent(op: str) -> Step:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]

    def step(g: Drawing) -> None:
        x = g.value(("float32",), shape=(1 + g.below(4), g.size(), 1 + g.below(4)))
        direction = g.choose(("forward", "reverse", "bidirectional"))
        ways, hidden = 1 + (direction == "bidirectional"), 1 + g.below(3)
        weights = [
            g.constant(g.random.uniform(-1, 1, (ways, gates * hidden, n)).astype(np.float32))
            for n in (g.array(x).shape[-1], hidden)
        ]
        bias = g.constant(g.random.uniform(-1, 1, (ways, 2 * gates * hidden)).astype(np.float32))
        inputs = [x, *weights, bias] if g.below(2) else [x, *weights]
        g.node(op, inputs, 2, hidden_size=hidden, direction=direction)

    return step


def _attention(g: Drawing) -> None:
    x = g.value(("float32",), shape=(1 + g.below(2), 2, 1 + g.below(4), 4))
    others = [g.new("float32", [g.array(x).shape[0], 2, 3, 4]) for _ in range(2)]
    g.node("Attention", [x, *others])


def _rms(g: Drawing) -> None:
    x = g.value(("float32",), (2, 3, 4))
    g.node("RMSNormalization", [x, g.weight("float32", g.array(x).shape[-1:])], axis=-1, epsilon=0.01)


def _windows(g: Drawing) -> None:
    op = g.choose(("HannWindow", "HammingWindow", "BlackmanWindow"))
    g.node(op, [g.constant(1 + g.below(8), np.int64)], periodic=g.below(2))


def _dft(g: Drawing) -> None:
    x = g.weight("float32", (1 + g.below(2), 2 + g.below(7), 1))
    if g.opset >= 20:
        g.node("DFT", [x, "", g.constant(1, np.int64)], onesided=g.below(2))
    elif g.opset >= 17:
        g.node("DFT", [x], axis=1, onesided=g.below(2))


def _stft(g: Drawing) -> None:
    x = g.weight("float32", (1 + g.below(2), 8 + g.below(8), 1))
    window = [g.constant(g.random.uniform(0, 1, 4).astype(np.float32))] if g.below(2) else []
    length = [] if window else ["", g.constant(4, np.int64)]
    g.node("STFT", [x, g.constant(1 + g.below(3), np.int64), *window, *length], onesided=g.below(2))


def _swish(g: Drawing) -> None:
    g.node("Swish", [g.value(("float32",))], alpha=g.choose((1.0, 0.5)))


def _conv_integer(g: Drawing) -> None:
    x = g.value(("uint8",), (3, 4))
    window = window_of(g, g.array(x).shape[2:], dilate=False)
    weight = g.weight("uint8", [2, g.array(x).shape[1], *window["kernel_shape"]])
    g.node("ConvInteger", [x, weight, g.constant(g.choose((0, 2)), np.uint8)], **window)


def _col_to_im(g: Drawing) -> None:
    x = g.value(("float32",), shape=(1 + g.below(2), 4 * (1 + g.below(2)), 9))
    g.node("Col2Im", [x, g.constant([4, 4], np.int64), g.constant([2, 2], np.int64)])


def _det(g: Drawing) -> None:
    size = 1 + g.below(3)
    g.node("Det", [g.weight("float32", [*g.shape((0, 1)), size, size])])


def _loss(g: Drawing) -> None:
    classes = 2 + g.below(3)
    x = g.value(("float32",), shape=(g.size(), classes, g.size()))
    target = g.new("int64", [g.array(x).shape[0], g.array(x).shape[2]], 0, classes - 1)
    for name in (x, target):  # ONNX Runtime does not compare their sizes
        g.fix(name)
    op = g.choose(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))
    g.node(op, [x, target], reduction=g.choose(("none", "mean", "sum")))


def _suppression(g: Drawing) -> None:
    count = 1 + g.below(5)
    corners = np.sort(g.random.uniform(0, 4, (1, count, 2, 2)), axis=2).reshape(1, count, 4).astype(np.float32)
    scores = g.constant(g.random.permutation(count).reshape(1, 1, count).astype(np.float32))
    limits = [g.constant([3], np.int64), g.constant([0.5], np.float32), g.constant([0.1], np.float32)]
    g.node("NonMaxSuppression", [g.constant(corners), scores, *limits])


def _deformed(g: Drawing) -> None:
    n, c, outputs = 1 + g.below(2), 1 + g.below(3), 1 + g.below(3)
    h, w, kernel = 2 + g.below(4), 2 + g.below(4), [1 + g.below(2), 1 + g.below(2)]
    places, sizes = kernel[0] * kernel[1], [h - kernel[0] + 1, w - kernel[1] + 1]
    x = g.weight("float32", [n, c, h, w])
    offsets = g.constant(g.random.uniform(-2, 2, [n, 2 * places, *sizes]).astype(np.float32))
    weight = g.weight("float32", [outputs, c, *kernel])
    bias = g.weight("float32", [outputs]) if g.below(2) else ""
    mask = [g.constant(g.random.uniform(0, 1, [n, places, *sizes]).astype(np.float32))] if g.below(2) else []
    g.node("DeformConv", [x, weight, offsets, bias, *mask], kernel_shape=kernel)


def _roi_pool(g: Drawing) -> None:
    x = g.weight("float32", [1 + g.below(2), 1 + g.below(3), 4 + g.below(4), 6])
    count = 1 + g.below(3)
    corners = np.sort(g.random.integers(0, 8, [count, 2, 2]), axis=1).reshape(count, 4)
    batch = g.random.integers(0, g.array(x).shape[0], [count, 1])
    boxes = g.constant(np.concatenate([batch, corners], axis=1), np.float32)
    g.node("MaxRoiPool", [x, boxes], pooled_shape=[1 + g.below(3), 1 + g.below(3)], spatial_scale=g.choose((1.0, 0.5)))


def _mel(g: Drawing) -> None:
    values = [(2 + g.below(4), np.int64), (g.choose((8, 16)), np.int64), (8000, np.int64), (0.0, np.float32)]
    g.node("MelWeightMatrix", [g.constant(v, t) for v, t in (*values, (4000.0, np.float32))])


def _tensor_scatter(g: Drawing) -> None:
    shape = [1 + g.below(3), 1 + g.below(2), 2 + g.below(5), 1 + g.below(3)]
    x = g.value(("float32", "int64", "int32"), shape=shape)
    few = 1 + g.below(shape[2])
    update = g.new(str(g.array(x).dtype), [*shape[:2], few, shape[3]])
    g.fix(x)
    g.fix(update)
    at = [g.weight("int64", shape[:1], 0, shape[2] - few)] if g.below(2) else []
    g.node("TensorScatter", [x, update, *at], axis=-2, mode=g.choose(("linear", "circular")))


STEPS: dict[str, Step] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool("MaxPool"), "AveragePool": _pool("AveragePool"),
    "LpPool": _pool("LpPool"), "GlobalAveragePool": _global_pool("GlobalAveragePool"),
    "GlobalMaxPool": _global_pool("GlobalMaxPool"), "GlobalLpPool": _global_pool("GlobalLpPool"), "Resize": _resize,
    "GridSample": _grid_sample, "AffineGrid": _affine_grid, "RoiAlign": _roi_align, "MaxUnpool": _unpool,
    "LSTM": _recurrent("LSTM"), "GRU": _recurrent("GRU"), "RNN": _recurrent("RNN"), "Attention": _attention,
    "RMSNormalization": _rms, "HannWindow": _windows, "HammingWindow": _windows, "BlackmanWindow": _windows,
    "DFT": _dft, "STFT": _stft, "Swish": _swish,
    "ConvInteger": _conv_integer, "Col2Im": _col_to_im, "Det": _det, "NegativeLogLikelihoodLoss": _loss,
    "SoftmaxCrossEntropyLoss": _loss, "NonMaxSuppression": _suppression,
    "DeformConv": _deformed, "MaxRoiPool": _roi_pool, "MelWeightMatrix": _mel, "TensorScatter": _tensor_scatter,
}  # fmt: skip
