"""Convolutions, pools, resizing, transforms and detection for random TFLite graphs: each adds an op, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.tflite_drawing import TfliteDrawing
from tests.fuzz.tflite_elementwise import ACTIVATIONS

Step = Callable[[TfliteDrawing], Any]


def window(g: TfliteDrawing, sizes: Sequence[int], names: str = "hw") -> tuple[list[int], dict[str, Any]]:
    """The kernel's sizes and the options of a convolution over axes of these sizes."""
    kernel = [1 + g.below(min(max(n, 1), 3)) for n in sizes]
    found: dict[str, Any] = {"padding": g.choose(("SAME", "VALID"))}
    for name, k, n in zip(names, kernel, sizes, strict=True):
        found[f"stride_{name}"] = g.choose((1, 1, 2, 3))
        fitting = [d for d in (1, 1, 1, 2, 3) if (k - 1) * d < max(n, 1) or g.chance(0.1)]
        found[f"dilation_{name}_factor"] = g.choose(fitting or [1])
    return kernel, found | {"fused_activation_function": g.choose(ACTIVATIONS)}


def _image(g: TfliteDrawing, ranks: Sequence[int] = (4,)) -> str:
    return g.value(("float32",), ranks)


def _bias(g: TfliteDrawing, count: int) -> list[str]:
    """A bias, or none in one of two ways."""
    return g.choose(([g.weight("float32", [count])], [g.weight("float32", [count])], [""], []))  # type: ignore[no-any-return]


def _conv(g: TfliteDrawing) -> None:
    x = _image(g)
    g.fix(x, 3)
    _, h, w, c = g.array(x).shape
    kernel, options = window(g, (h, w))
    is_open = g.is_dynamic() and (x not in g.inputs or isinstance(g.inputs[x].dims[3], str))
    groups = 1 if is_open else g.choose([n for n in (1, 1, 1, 2, 3, c) if n and c % n == 0] or [1])
    outputs = groups * g.choose((1, 1, 2))
    g.op("CONV_2D", [x, g.weight("float32", [outputs, *kernel, c // groups]), *_bias(g, outputs)], **options)


def _depthwise(g: TfliteDrawing) -> None:
    x = _image(g)
    g.fix(x, 3)
    _, h, w, c = g.array(x).shape
    kernel, options = window(g, (h, w))
    times = g.choose((1, 1, 2))
    said = times if bool(g.sizes) or g.chance(0.85) else g.choose((1, 3))
    weight = g.weight("float32", [1, *kernel, c * times])
    g.op("DEPTHWISE_CONV_2D", [x, weight, *_bias(g, c * times)], depth_multiplier=said, **options)


def _conv_3d(g: TfliteDrawing) -> None:
    x = _image(g, (5,))
    g.fix(x, 4)
    _, d, h, w, c = g.array(x).shape
    kernel, options = window(g, (d, h, w), "dhw")
    groups = g.choose([n for n in (1, 1, 1, 2) if c % n == 0])
    outputs = groups * (1 + g.below(3))
    weight = g.weight("float32", [*kernel, c // groups, outputs])
    g.op("CONV_3D", [x, weight, *_bias(g, outputs)], **options)


def _sizes_before(g: TfliteDrawing, kernel: Sequence[int], options: dict[str, Any], names: str) -> list[int]:
    """Sizes of a transposed convolution's result, and those of its operand after them."""
    found = []
    for name, k in zip(names, kernel, strict=True):
        n, stride = 1 + g.below(4), options[f"stride_{name}"]
        d = options.get(f"dilation_{name}_factor", 1)
        size = n * stride - g.below(stride) if options["padding"] == "SAME" else (n - 1) * stride + (k - 1) * d + 1
        found += [n, size]
    return found


def _transpose_conv(g: TfliteDrawing) -> None:
    kernel, options = window(g, (3, 3))
    options = {k: v for k, v in options.items() if "dilation" not in k}
    h, height, w, width = _sizes_before(g, kernel, options, "hw")
    n, c, outputs = g.size(), g.size(), 1 + g.below(3)
    x = g.new("float32", [n, h, w, c])
    g.fix(x)
    shape = g.choice([n, height, width, outputs])
    g.op(
        "TRANSPOSE_CONV",
        [shape, g.weight("float32", [outputs, *kernel, c]), x, *_bias(g, outputs)],
        "float32",
        **options,
    )


def _conv_3d_transpose(g: TfliteDrawing) -> None:
    kernel, options = window(g, (3, 3, 3), "dhw")
    d, depth, h, height, w, width = _sizes_before(g, kernel, options, "dhw")
    n, c, outputs = g.size(), g.size(), 1 + g.below(3)
    x = g.new("float32", [n, d, h, w, c])
    g.fix(x)
    shape = g.choice([n, depth, height, width, outputs])
    weight = g.weight("float32", [*kernel, outputs, c])
    g.op("CONV_3D_TRANSPOSE", [shape, weight, x, *_bias(g, outputs)], "float32", **options)


def _pool(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = _image(g)
        kernel, options = window(g, g.array(x).shape[1:3])
        options = {k: v for k, v in options.items() if "dilation" not in k}
        g.op(op, [x], filter_height=kernel[0], filter_width=kernel[1], **options)

    return step


def _local_response(g: TfliteDrawing) -> None:
    options = {"radius": g.below(4), "bias": g.choose((1.0, 2.0)), "alpha": g.choose((1.0, 0.1)), "beta": 0.5}
    g.op("LOCAL_RESPONSE_NORMALIZATION", [_image(g)], **options)


def _resize(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        x = g.value(("float32", "float32", "float32", "float16", "int32", "int8", "int16"), (4,))
        size = [1 + g.below(9), 1 + g.below(9)]
        ways = ((False, False), (True, False), (False, True))
        align, half = g.choose(ways)
        g.op(op, [x, g.choice(size, size[::-1])], align_corners=align, half_pixel_centers=half)

    return step


def _rfft(g: TfliteDrawing) -> None:
    lengths = [g.choose((1, 2, 4)), g.choose((2, 4, 8))]
    x = g.weight("float32", [*g.shape((0, 1)), *(n + g.below(3) for n in lengths)])
    found = g.op("RFFT2D", [x, g.choice(lengths, share=0.0)], "complex64")
    for name in found:
        g.op(g.choose(("REAL", "IMAG", "COMPLEX_ABS")), [name], "float32")


def _suppression(op: str) -> Step:
    def step(g: TfliteDrawing) -> None:
        count = g.size()
        low, sizes = g.new("float32", [count, 2], 0, 4), g.new("float32", [count, 2], 0.25, 4)
        g.fix(low)
        g.fix(sizes)  # LiteRT chooses a box without an area again and again
        high = g.op("ADD", [low, sizes], fused_activation_function="NONE")
        [boxes] = g.op("CONCATENATION", [low, *high], axis=1) if high else [""]
        if not boxes:
            return
        ranking = 1 + g.random.permutation(count)  # how LiteRT orders equal scores depends on the state of a heap
        scores = g.choice(ranking / 64, ranking[::-1] / 32, dtype="float32")
        soft = op == "NON_MAX_SUPPRESSION_V5"
        values = [g.choose((0.3, 0.5, 1.0)), g.choose((0.0, 0.4)), *([g.choose((0.0, 0.0, 0.5, 0.1))] if soft else [])]
        inputs = [boxes, scores, g.choice(g.below(6), 3), *(g.choice(v, dtype="float32", share=0.1) for v in values)]
        g.op(op, inputs, *(("int32", "float32", "int32") if soft else ("int32", "int32")))

    return step


def _reduce_window(g: TfliteDrawing) -> None:
    x = g.value(("float32", "int32", "int64", "int8", "uint8", "bool"), (1, 2, 3, 4))
    dtype = str(g.array(x).dtype)
    kernel = [1 + g.below(min(max(n, 1), 3)) for n in g.array(x).shape]
    strides, dilations = ([g.choose((1, 1, 2)) for _ in kernel] for _ in range(2))
    kind = g.choose(("ALL", "ANY") if dtype == "bool" else ("ADD", "MUL", "MINIMUM", "MAXIMUM"))
    init = g.weight(dtype, ())
    g.op(
        "REDUCE_WINDOW",
        [x, init, *(g.choice(v, dtype="int64") for v in (kernel, strides, dilations))],
        reduce_function=kind,
    )


STEPS: dict[str, Step] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "CONV_3D": _conv_3d,
    "TRANSPOSE_CONV": _transpose_conv,
    "CONV_3D_TRANSPOSE": _conv_3d_transpose,
    **{op: _pool(op) for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")},
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    **{op: _resize(op) for op in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")},
    **dict.fromkeys(("RFFT2D", "REAL", "IMAG", "COMPLEX_ABS"), _rfft),
    **{op: _suppression(op) for op in ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")},
    "REDUCE_WINDOW": _reduce_window,
}
