"""Random small QDQ models: each op between DequantizeLinear and QuantizeLinear, as exporters and quantizers write them.

The scale of each result fits its range times a random factor, so that some results saturate and others use few steps.
Every op of the result is judged: within one step of what ONNX Runtime computes in float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.drawing import Input
from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.graphs_text import text_of
from tests.fuzz.soaking import Found
from tests.harness.child import stage
from tests.harness.litert import Array
from tests.models.each_op import compare_each


@dataclass
class Quantized(Drawing):
    """A QDQ model under construction. `wild`: scales are of any size, unrelated to the range. `ends`: its outputs.

    `newest`: the scale and zero point that were drawn last.
    """

    dtype: str = "int8"
    wild: bool = False
    ends: list[str] = field(default_factory=list)
    newest: tuple[Array, Array] | None = None

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.dtype = self.choose(("int8", "int8", "int8", "uint8", "uint8", "int16"))
        self.wild = self.chance(0.2)
        self.opset = 21 if self.dtype == "int16" else self.choose((14, 17, 21))
        self.open, self.empty = 0.0, False

    def is_bounded(self, array: Any) -> bool:
        """All are: wild scales make large floats."""
        return True

    def outputs(self) -> list[str]:
        """Those that were chosen."""
        return self.ends

    def input(self, shape: Sequence[int]) -> str:
        """The real values of a new input: integers, or floats that are quantized first."""
        array = self.random.normal(size=tuple(shape)).astype(np.float32) * float(2 ** self.random.uniform(-3, 3))
        name, parameters = f"in{len(self.inputs)}", self.parameters(array)
        stored = bool(self.below(2))
        self.arrays[name] = quantized(array, *parameters) if stored else array
        self.inputs[name] = Input(str(self.arrays[name].dtype), array.shape, 0, 0)
        return self.dequantize(name, *parameters) if stored else self.store(name)

    def parameters(self, array: Array) -> tuple[Array, Array]:
        """A scale and a zero point for the range of `array`, more or less; int16 is symmetric.

        Some zero points are at an end of the stored integers, and some results have the parameters of the value before.
        """
        if self.newest is not None and self.chance(0.2):
            return self.newest
        low, high = min(float(array.min(initial=0)), 0.0), max(float(array.max(initial=0)), 1e-3)
        scale = np.float32((high - low) / 255 * self.choose((0.5, 1, 1, 1, 1.7)))
        if self.wild:
            scale = np.float32(2.0 ** self.random.uniform(-24, 20))
        info = np.iinfo(self.dtype)
        zero = np.clip(round(info.min - low / float(scale)), info.min, info.max) if self.dtype != "int16" else 0
        if self.dtype == "int16":
            scale = np.float32(scale / 128)
        elif self.chance(0.1):
            zero = self.choose((info.min, info.max))
        self.newest = np.asarray(scale), np.asarray(zero, self.dtype)
        return self.newest

    def store(self, name: str) -> str:
        """`name` quantized and dequantized."""
        scale, zero = self.parameters(self.array(name))
        (made,) = self.node("QuantizeLinear", [name, self.constant(scale), self.constant(zero)])
        return self.dequantize(made, scale, zero)

    def dequantize(self, name: str, scale: Array, zero: Array, **axis: int) -> str:
        """The real values of integers."""
        return self.node("DequantizeLinear", [name, self.constant(scale), self.constant(zero)], **axis)[0]

    def weights_of(self, shape: Sequence[int], axis: int) -> str:
        """Constant weights, per tensor or per index of `axis`, symmetric."""
        array = self.random.normal(size=tuple(shape)).astype(np.float32)
        per_axis = bool(self.below(2))
        axes = tuple(i for i in range(len(shape)) if i != axis) if per_axis else None
        scale = (np.abs(array).max(axes) / 127 + 1e-6).astype(np.float32)
        spread = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if per_axis else scale
        name = self.constant(quantized(array, spread, np.zeros((), np.int8)))
        return self.dequantize(name, scale, np.zeros(scale.shape, np.int8), **({"axis": axis} if per_axis else {}))

    def finish(self, real: str) -> None:
        """Make the integers of `real` an output."""
        (node,) = [n for n in self.nodes if n.output[0] == real]
        if node.input[0] not in [*self.inputs, *self.ends]:
            self.ends.append(node.input[0])


def quantized(array: Array, scale: Array, zero: Array) -> Array:
    """The integers of real values, as ONNX defines QuantizeLinear."""
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint(array / scale) + zero.astype(np.float64), info.min, info.max).astype(zero.dtype)


Step = Callable[[Quantized, str], str]


def _made(g: Quantized, op: str, operands: Sequence[str], **attributes: Any) -> str:
    """A node's result, quantized; the first operand where it does not run."""
    found = g.node(op, operands, **attributes)
    return g.store(found[0]) if found and found[0] in g.arrays else operands[0]


def _bias(g: Quantized, size: int) -> str:
    """A float bias, or none."""
    return g.constant(g.random.normal(size=size).astype(np.float32)) if g.random.integers(2) else ""


def convolution(g: Quantized, x: str) -> str:
    """Conv: plain, grouped or depthwise; strides, pads, dilations."""
    channels = g.array(x).shape[1]
    group = int(g.random.choice([n for n in (1, 1, 2, channels) if channels % n == 0]))
    out, size = int(group * g.random.integers(1, 4)), int(g.random.integers(1, 4))
    size = min(size, *g.array(x).shape[2:])
    w = g.weights_of([out, channels // group, size, size], 0)
    pad = [int(n) for n in g.random.integers(0, size, 4)]
    stride = [int(g.random.integers(1, 3))] * 2
    bias = _bias(g, out)
    return _made(g, "Conv", [x, w, *([bias] if bias else [])], group=group, pads=pad, strides=stride)


def matmul(g: Quantized, x: str) -> str:
    """MatMul with constant weights."""
    w = g.weights_of([g.array(x).shape[-1], int(g.random.integers(1, 9))], 1)
    return _made(g, "MatMul", [x, w])


def product(g: Quantized, x: str) -> str:
    """MatMul of two activations."""
    shape = list(g.array(x).shape)
    y = g.input([*shape[:-2], shape[-1], int(g.random.integers(1, 6))])
    return _made(g, "MatMul", [x, y])


def gemm(g: Quantized, x: str) -> str:
    """Flatten and Gemm, the weights transposed or not."""
    (flat,) = g.node("Flatten", [x], axis=1)
    real = g.store(flat)
    out, transposed, inner = int(g.random.integers(1, 9)), int(g.random.integers(2)), g.array(flat).shape[1]
    shape = [out, inner] if transposed else [inner, out]
    w, bias = g.weights_of(shape, 0 if transposed else 1), _bias(g, out)
    return _made(g, "Gemm", [real, w, *([bias] if bias else [])], transB=transposed)


def binary(op: str) -> Step:
    """An op on two activations, one of another shape, or the same."""

    def step(g: Quantized, x: str) -> str:
        choice = int(g.random.integers(4))
        if choice == 0:
            return _made(g, op, [x, x])
        if choice == 1:
            return _made(g, op, [x, g.weights_of(g.array(x).shape[-1:], 0)])
        shape = g.array(x).shape if choice == 2 else [1 if g.random.integers(2) else d for d in g.array(x).shape]
        return _made(g, op, [x, g.input(shape)])

    return step


def concat(g: Quantized, x: str) -> str:
    """Concat of two or three."""
    axis = int(g.random.integers(-g.array(x).ndim, g.array(x).ndim))
    others = [g.input(g.array(x).shape) if g.random.integers(2) else x for _ in range(int(g.random.integers(1, 3)))]
    return _made(g, "Concat", [x, *others], axis=axis)


def unary(op: str, **attributes: Any) -> Step:
    """An op of one operand."""

    def step(g: Quantized, x: str) -> str:
        return _made(g, op, [x], **attributes)

    return step


def pool(op: str) -> Step:
    """A pool with its own scale, padded or not."""

    def step(g: Quantized, x: str) -> str:
        size = min(2, *g.array(x).shape[2:])
        pad = [int(n) for n in g.random.integers(0, size, 4)]
        stride = [int(n) for n in g.random.integers(1, 3, 2)]
        more = {"count_include_pad": int(g.random.integers(2))} if op == "AveragePool" else {}
        return _made(g, op, [x], kernel_shape=[size, size], pads=pad, strides=stride, **more)

    return step


def clip(g: Quantized, x: str) -> str:
    """Clip to bounds that may be on the grid, or not."""
    low, high = sorted(float(v) for v in g.random.choice([-1.0, 0.0, 0.3, 2.0, 6.0], 2, replace=False))
    return _made(g, "Clip", [x, g.constant(np.float32(low)), g.constant(np.float32(high))])


def reshape(g: Quantized, x: str) -> str:
    """Reshape to two axes; quantized again, or with the same parameters."""
    return _made(g, "Reshape", [x, g.constant(np.asarray([g.array(x).shape[0], -1], np.int64))])


def transpose(g: Quantized, x: str) -> str:
    """Transpose by a random permutation."""
    return _made(g, "Transpose", [x], perm=[int(i) for i in g.random.permutation(g.array(x).ndim)])


def pad(g: Quantized, x: str) -> str:
    """Pad with 0 or another value."""
    pads = g.random.integers(0, 3, 2 * g.array(x).ndim).astype(np.int64)
    value = [g.constant(np.float32(0.7))] if g.random.integers(2) else []
    return _made(g, "Pad", [x, g.constant(pads), *value])


def part(g: Quantized, x: str) -> str:
    """Slice the last axis."""
    bounds = [g.constant(np.asarray([n], np.int64)) for n in (0, max(1, g.array(x).shape[-1] - 1), -1)]
    return _made(g, "Slice", [x, *bounds])


def gather(g: Quantized, x: str) -> str:
    """Gather along the last axis."""
    places = g.random.integers(0, g.array(x).shape[-1], 3).astype(np.int64)
    return _made(g, "Gather", [x, g.constant(places)], axis=-1)


def mean(g: Quantized, x: str) -> str:
    """ReduceMean over the last axes."""
    axes = sorted({int(n) for n in g.random.integers(1, g.array(x).ndim, 2)}) if g.array(x).ndim > 1 else [0]
    keepdims = int(g.random.integers(2))
    if g.opset < 18:
        return _made(g, "ReduceMean", [x], axes=axes, keepdims=keepdims)
    return _made(g, "ReduceMean", [x, g.constant(np.asarray(axes, np.int64))], keepdims=keepdims)


STEPS: dict[str, tuple[int, Step]] = {
    "conv": (4, convolution), "matmul": (0, matmul), "product": (0, product), "gemm": (4, gemm),
    "concat": (0, concat), "clip": (0, clip), "reshape": (0, reshape), "transpose": (0, transpose), "pad": (0, pad),
    "slice": (0, part), "gather": (0, gather), "maxpool": (4, pool("MaxPool")), "avgpool": (4, pool("AveragePool")),
    "global": (4, unary("GlobalAveragePool")),
    **{op.lower(): (0, binary(op)) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    **{op.lower(): (0, unary(op)) for op in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Abs", "Neg", "Exp", "Erf")},
    "leaky": (0, unary("LeakyRelu", alpha=0.1)), "softmax": (0, unary("Softmax", axis=-1)),
    "squeeze": (0, unary("Flatten", axis=2)),
}  # fmt: skip
"""Name -> (the rank that the operand must have, 0 for any; the step)."""


def drawn(seed: int) -> Quantized:
    """The model of a seed: one op, or up to four; some intermediate tensors are outputs too."""
    g = Quantized(seed)
    x = g.input([1 + g.below(6) for _ in range(4)])
    for _ in range(1 if g.wild else g.choose((1, 1, 1, 2, 3, 4))):
        fitting = [n for n in STEPS if STEPS[n][0] in (0, g.rank(x)) and g.rank(x) > 1]
        if not fitting:
            break
        x = STEPS[g.choose(fitting)][1](g, x)
        if g.chance(0.25):
            g.finish(x)
    g.finish(x)
    return g


def attempt(seed: int) -> Found:
    """The outcome of a seed, in the worker process: "disagree" where an op differs by more than a step."""
    stage("source")
    g = drawn(seed)
    if not g.ends:
        return Found("skipped")
    model = g.model()
    data = model.SerializeToString()
    used = set(g.used())
    stage("convert")
    found = compare_each(data, {name: g.array(name) for name in g.inputs if name in used})
    wrong = [difference for difference in found if not difference.steps <= 1]
    if wrong:
        return Found(
            "disagree", " ".join(wrong[0].ops), "; ".join(map(str, wrong)), text_of(model), {"model.onnx": data}
        )
    return Found("agree")


def described(seed: int) -> tuple[str, dict[str, bytes]]:
    """The text and the file of a seed: of cases that end the process."""
    model = drawn(seed).model()
    return text_of(model), {"model.onnx": model.SerializeToString()}
