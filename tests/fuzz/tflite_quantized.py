"""Quantized TFLite ops for random graphs: each function adds one op on int8, uint8 or int16, or none.

The scale of a result fits the values that the float form of the op computes, times a random factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.fuzz.tflite_drawing import Scale, TfliteDrawing
from tests.fuzz.tflite_elementwise import ACTIVATIONS
from tests.fuzz.tflite_networks import window
from tests.harness.litert import Array

Step = Callable[[TfliteDrawing], Any]
_TYPES = ("int8", "int8", "uint8", "int16")
_UNARY = (
    "TANH",
    "LOGISTIC",
    "SOFTMAX",
    "ABS",
    "RSQRT",
    "EXP",
    "HARD_SWISH",
    "LEAKY_RELU",
    "RELU",
    "RELU6",
    "NEG",
    "ELU",
    "GELU",
    "SQUARE",
)
_FIXED = {
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
}
_BINARY = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "PRELU")
_COMPARE = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")


def _operand(g: TfliteDrawing, dtype: str, shape: Sequence[int], scale: Scale | None = None) -> str:
    """A new quantized value."""
    info = np.iinfo(dtype)
    name = g.new(dtype, shape, info.min, info.max)
    zero = 0 if dtype == "int16" else g.choose((0, 0, info.min, info.max, g.below(200) + info.min))
    range_ = g.choose((0.5, 1.0, 4.0, 7.3))
    g.quantized[name] = scale or Scale((float(np.float32(range_ / (info.max + 1))),), (zero,))
    return name


def _fitting(g: TfliteDrawing, real: Array, dtype: str) -> Scale:
    """The parameters of a result with these real values."""
    info = np.iinfo(dtype)
    low, high = min(float(real.min(initial=0)), 0.0), max(float(real.max(initial=0)), 1e-2)
    factor = g.choose((1.0, 1.0, 1.3, 0.7))
    if dtype == "int16":
        return Scale((float(np.float32(max(-low, high) / 32767 * factor)),))
    scale = float(np.float32((high - low) / 255 * factor))
    return Scale((scale,), (int(np.clip(round(info.min - low / scale), info.min, info.max)),))


def _op(
    g: TfliteDrawing, name: str, inputs: Sequence[str], dtype: str, scale: Scale | None = None, **options: Any
) -> None:
    """Add an op; ``scale`` of its result: by default one that fits what the float form computes."""
    if scale is None:
        found = _float_form(g, name, inputs, options)
        if found is None:
            return
        scale = _fitting(g, found, dtype)
    g.quantized[f"v{len(g.ops)}_0"] = scale
    if not g.op(name, inputs, dtype, **options):
        del g.quantized[f"v{len(g.ops)}_0"]


def _float_form(g: TfliteDrawing, name: str, inputs: Sequence[str], options: Mapping[str, Any]) -> Array | None:
    """What the op computes on the real values of its operands."""
    other = TfliteDrawing(0)
    for x in inputs:
        if x:
            other.arrays[x] = g.quantized[x].real(g.array(x)) if x in g.quantized else g.array(x)
            other.constants |= {x} & g.constants
    found = other.op(name, inputs, "float32", **options)
    return other.array(found[0]) if found else None


def _unary(g: TfliteDrawing) -> None:
    op, dtype = g.choose(_UNARY), g.choose(_TYPES)
    fixed = _FIXED.get(op, {}).get(dtype)
    scale = Scale((fixed[0],), (fixed[1],)) if fixed and g.chance(0.9) else None
    options = {"SOFTMAX": {"beta": 1.0}, "LEAKY_RELU": {"alpha": g.choose((0.1, 0.5))}}.get(op, {})
    shape = g.shape()
    if op == "SOFTMAX":
        shape = (*shape[:-1], 1 + g.below(4))
    x = _operand(g, dtype, shape)
    g.fix(x, -1) if op == "SOFTMAX" else None
    _op(g, op, [x], dtype, scale, **options)


def _binary(g: TfliteDrawing) -> None:
    op, dtype, shape = g.choose(_BINARY), g.choose(_TYPES), g.shape()
    x = _operand(g, dtype, shape)
    other = [1 if g.below(4) == 0 else n for n in shape][g.below(len(shape) + 1) if g.chance(0.3) else 0 :]
    same = op in ("MAXIMUM", "MINIMUM") and g.chance(0.5)
    slopes = "int8" if op == "PRELU" and dtype == "int16" else dtype
    y = _operand(g, slopes, other, g.quantized[x] if same else None)
    options = {"fused_activation_function": g.choose(ACTIVATIONS)} if op in ("ADD", "SUB", "MUL") else {}
    if op in ("ADD", "SUB"):
        options["pot_scale_int16"] = False
    _op(g, op, [x, y], dtype, g.quantized[x] if same else None, **options)


def _compare(g: TfliteDrawing) -> None:
    """On equal or other scales below 1, some of them smaller than the 1/256 to which LiteRT rounds real values."""
    dtype, shape = g.choose(_TYPES), g.shape()
    scales = [float(np.float32(g.choose((0.05, 0.9, 0.011, 1e-3, 1e-5)))) for _ in range(2)]
    zeros = [0 if dtype == "int16" else g.below(100) for _ in scales]
    kinds = [Scale((s,), (z,)) for s, z in zip(scales, zeros, strict=True)]
    kinds = kinds[:1] * 2 if g.chance(0.5) else kinds
    g.op(g.choose(_COMPARE), [_operand(g, dtype, shape, kind) for kind in kinds], "bool")


def _quantize(g: TfliteDrawing) -> None:
    dtype = g.choose(_TYPES)
    if g.below(2):
        x = g.value(("float32",))
        _op(g, "QUANTIZE", [x], dtype, _fitting(g, g.array(x), dtype))
        return
    x = _operand(g, g.choose(_TYPES), g.shape())
    _op(g, "QUANTIZE", [x], dtype, _fitting(g, g.quantized[x].real(g.array(x)), dtype))


def _dequantize(g: TfliteDrawing) -> None:
    if g.chance(0.3):
        shape = g.shape((1, 2, 3, 4))
        axis = g.below(len(shape))
        x = g.weight("int8", shape, -128, 127)
        g.quantized[x] = Scale(
            tuple(float(np.float32((1 + i) / 100)) for i in range(shape[axis])), (0,) * shape[axis], axis
        )
    else:
        x = _operand(g, g.choose(_TYPES), g.shape())
    g.op("DEQUANTIZE", [x], "float32")


def _weight(g: TfliteDrawing, dtype: str, shape: Sequence[int], axis: int | None) -> str:
    """Constant weights, per tensor or per index of an axis."""
    low = 0 if dtype == "uint8" else -127
    name = g.constant(g.random.integers(low, 128 + 128 * (dtype == "uint8"), tuple(shape)), dtype)
    count = shape[axis] if axis is not None else 1
    scales = tuple(float(np.float32((1 + g.below(9)) / 200)) for _ in range(count))
    zero = 128 if dtype == "uint8" else 0
    g.quantized[name] = Scale(scales, (zero,) * count, axis or 0)
    return name


def _bias(g: TfliteDrawing, x: str, weight: str, count: int, wide: bool) -> str:
    """A bias with the scale of the products, or none."""
    if g.below(3) == 0:
        return ""
    name = g.constant(g.random.integers(-500, 500, count), "int64" if wide else "int32")
    scales = [
        float(np.float32(np.float32(g.quantized[x].scales[0]) * np.float32(s))) for s in g.quantized[weight].scales
    ]
    g.quantized[name] = Scale(tuple(scales), (0,) * len(scales))
    return name


def _layer(g: TfliteDrawing, op: str, x: str, shape: Sequence[int], axis: int, **options: Any) -> None:
    dtype = str(g.array(x).dtype)
    per_axis = axis if dtype != "uint8" and g.below(2) else None
    weight = _weight(g, "uint8" if dtype == "uint8" else "int8", shape, per_axis)
    bias = _bias(g, x, weight, shape[axis], dtype == "int16")
    real = [n for n in (x, weight, bias) if n]
    found = _float_form(g, op, real, options)
    if found is not None:
        _op(g, op, [x, weight, bias], dtype, _fitting(g, found, dtype), **options)


def _conv(g: TfliteDrawing) -> None:
    shape = g.shape((4,))
    kernel, options = window(g, shape[1:3])
    outputs = 1 + g.below(4)
    x = _operand(g, g.choose(_TYPES), shape)
    g.fix(x, 3)
    if g.below(2):
        _layer(g, "CONV_2D", x, [outputs, *kernel, shape[3]], 0, **options)
    else:
        times = 1 + g.below(2)
        _layer(g, "DEPTHWISE_CONV_2D", x, [1, *kernel, shape[3] * times], 3, depth_multiplier=times, **options)


def _fully_connected(g: TfliteDrawing) -> None:
    shape = g.shape((1, 2, 2, 3))
    x = _operand(g, g.choose(_TYPES), shape)
    g.fix(x, -1)
    options = {"keep_num_dims": bool(g.below(2)), "fused_activation_function": g.choose(ACTIVATIONS)}
    _layer(g, "FULLY_CONNECTED", x, [1 + g.below(5), shape[-1]], 0, **options)


def _pool(g: TfliteDrawing) -> None:
    x = _operand(g, g.choose(_TYPES), g.shape((4,)))
    kernel, options = window(g, g.array(x).shape[1:3])
    options = {k: v for k, v in options.items() if "dilation" not in k}
    sizes = {"filter_height": kernel[0], "filter_width": kernel[1]}
    _op(g, g.choose(("AVERAGE_POOL_2D", "MAX_POOL_2D")), [x], str(g.array(x).dtype), g.quantized[x], **options, **sizes)


def _move(g: TfliteDrawing) -> None:
    dtype = g.choose(_TYPES)
    x = _operand(g, dtype, g.shape((1, 2, 3, 4)))
    shape, scale, rank = g.array(x).shape, g.quantized[x], g.rank(x)
    pads = g.choice([[g.below(3), g.below(3)] for _ in shape], share=0.0)
    forms: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
        ("RESHAPE", [x, g.choice([-1], share=0.0)], {}),
        ("TRANSPOSE", [x, g.choice(g.random.permutation(rank))], {}),
        ("PAD", [x, pads], {}),
        ("SLICE", [x, g.choice([0] * rank), g.choice([-1] * rank)], {}),
        ("TILE", [x, g.choice([2] * rank)], {}),
        ("GATHER", [x, g.choice([0, 0])], {"axis": g.below(rank)}),
        ("REVERSE_V2", [x, g.choice([0])], {}),
        ("CONCATENATION", [x, _operand(g, dtype, shape, scale)], {"axis": g.below(rank)}),
    )
    op, inputs, options = g.choose(forms)
    _op(g, op, inputs, dtype, scale, **options)


def _concatenation(g: TfliteDrawing) -> None:
    dtype = g.choose(("uint8", "int8"))
    x = _operand(g, dtype, g.shape((1, 2, 3, 4)))
    others = [_operand(g, dtype, g.array(x).shape) for _ in range(1 + g.below(2))]
    _op(g, "CONCATENATION", [x, *others], dtype, axis=g.axis(x))


def _reduce(g: TfliteDrawing) -> None:
    dtype = g.choose(_TYPES)
    x = _operand(g, dtype, g.shape((1, 2, 3, 4)))
    op = g.choose(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"))
    scale = g.quantized[x] if op.startswith("REDUCE") or (op == "MEAN" and g.below(2)) else None
    named = [int(a) for a in g.random.permutation(g.rank(x))[: 1 + g.below(g.rank(x))]]
    _op(g, op, [x, g.choice(named)], dtype, scale, keep_dims=bool(g.below(2)))


def _resize(g: TfliteDrawing) -> None:
    dtype = g.choose(_TYPES)
    op = g.choose(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"))
    g.open *= not (op == "RESIZE_BILINEAR" and dtype == "int16")  # converted for known sizes only
    x = _operand(g, dtype, g.shape((4,)))
    align, half = g.choose(((False, False), (True, False), (False, True)))
    size = g.choice([1 + g.below(7), 1 + g.below(7)])
    _op(g, op, [x, size], dtype, g.quantized[x], align_corners=align, half_pixel_centers=half)


STEPS: dict[str, Step] = {
    "unary": _unary, "binary": _binary, "comparison": _compare, "QUANTIZE": _quantize, "DEQUANTIZE": _dequantize,
    "convolution": _conv, "FULLY_CONNECTED": _fully_connected, "pool": _pool, "move": _move, "reduce": _reduce,
    "CONCATENATION": _concatenation, "resize": _resize,
}  # fmt: skip
