"""Random small ONNX models: convolutions, pools, elementwise ops with broadcasting, and everything that moves axes.

A seed gives a model. Shapes are tracked while building, so every model is valid; values stay bounded, so that two
runtimes can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
_LARGEST = 4096


class Builder:
    """A graph that grows; ``shapes`` holds the shape of each float value, ``open`` those that nobody has read yet."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[str] = []
        self.shapes: dict[str, Shape] = {}
        self.open: dict[str, None] = {}

    def input(self, shape: Shape) -> None:
        """Declare a model input."""
        self.inputs.append(f"in{len(self.inputs)}")
        self.shapes[self.inputs[-1]] = shape

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """Random numbers as an initializer."""
        return self.constant((self.random.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """An initializer."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, op: str, inputs: Sequence[str], *shapes: Shape, **attributes: Any) -> str:
        """Add a node with results of these shapes; the first one's name is returned."""
        results = [f"v{len(self.nodes)}_{i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, results, f"n{len(self.nodes)}", **attributes))
        for name in inputs:
            self.open.pop(name, None)
        self.shapes |= zip(results, shapes, strict=True)
        self.open |= dict.fromkeys(results)
        return results[0]

    def below(self, limit: int) -> int:
        """A random integer in [0, limit)."""
        return int(self.random.integers(limit))

    def choose(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[self.below(len(options))]

    def pick(self, *ranks: int) -> str | None:
        """A value of one of these ranks (any rank if none are given), the newest ones more likely."""
        fitting = [name for name, shape in self.shapes.items() if not ranks or len(shape) in ranks]
        return fitting[max(self.below(len(fitting)) for _ in range(3))] if fitting else None

    def model(self) -> onnx.ModelProto:
        """The model; its outputs are the values that nobody reads."""
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in self.inputs]
        outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in self.open]
        graph = helper.make_graph(self.nodes, "random", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_model(seed: int, size: int = 12) -> onnx.ModelProto:
    """The model of a seed, with about ``size`` steps."""
    b = Builder(seed)
    for _ in range(1 + b.below(2)):
        b.input(b.choose([(1, 3, 8, 8), (2, 4, 6, 5), (1, 4, 9), (2, 6, 8), (3, 5), (1, 8, 4, 4), (1, 2, 3, 4, 5)]))
    while len(b.nodes) < size:
        b.choose(STEPS)(b)
    return b.model()


def _unary(b: Builder) -> None:
    x = b.pick() or ""
    ops = ["Relu", "Sigmoid", "Tanh", "HardSwish", "Abs", "Neg", "Softplus", "Elu", "LeakyRelu", "Erf"]
    b.add(b.choose(ops), [x], b.shapes[x])


def _clip(b: Builder) -> None:
    x = b.pick() or ""
    low, high = b.choose([(0.0, 6.0), (-1.0, 1.0), (0.0, 1.0), (-0.3, 0.7)])
    b.add("Clip", [x, b.constant(low, np.float32), b.constant(high, np.float32)], b.shapes[x])


def _softmax(b: Builder) -> None:
    x = b.pick(2, 3, 4) or b.pick(5) or ""
    op = b.choose(["Softmax", "LogSoftmax"])
    b.add(op, [x], b.shapes[x], axis=b.below(len(b.shapes[x])))


def _with_constant(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    kept = [size if b.below(2) else 1 for size in shape][b.below(len(shape) + 1) :]
    pair = [x, b.weight(*kept)]
    op = b.choose(["Add", "Sub", "Mul", "Max", "Min"])
    b.add(op, pair if op in ("Max", "Min") or b.below(2) else pair[::-1], shape)


def _binary(b: Builder) -> None:
    x = b.pick() or ""
    fitting = [name for name in b.shapes if _broadcast(b.shapes[name], b.shapes[x])]
    y = b.choose(fitting)
    shape = _broadcast(b.shapes[x], b.shapes[y])
    if shape and math.prod(shape) <= _LARGEST:
        product = b.add(b.choose(["Add", "Sub", "Mul", "Max", "Min"]), [x, y], shape)
        if b.below(2):
            b.add("Tanh", [product], shape)


def _broadcast(a: Shape, b: Shape) -> Shape | None:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        return None


def _where(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    b.nodes.append(helper.make_node("Greater", [x, b.constant(0.1, np.float32)], [f"c{len(b.nodes)}"]))
    b.add("Where", [b.nodes[-1].output[0], x, b.weight(*shape[-1:])], shape)


def _conv(b: Builder) -> None:
    x = b.pick(3, 4)
    if not x:
        return
    n, channels, *sizes = b.shapes[x]
    group = b.choose([1, 1, channels, *(g for g in (2, 3) if channels % g == 0)])
    after = group * b.choose([1, 2] if group > 1 else [1, 3, 4, 8])
    kernel = [min(b.choose([1, 2, 3]), size) for size in sizes]
    strides = [b.choose([1, 1, 2]) for _ in sizes]
    dilations = [b.choose([1, 1, 2]) if (k - 1) * 2 < size else 1 for k, size in zip(kernel, sizes, strict=True)]
    pads = [b.below(2) for _ in range(2 * len(sizes))]
    half = len(sizes)
    out = [
        (size + pads[i] + pads[i + half] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, size in enumerate(sizes)
    ]
    weight = b.weight(after, channels // group, *kernel, scale=(channels // group * math.prod(kernel)) ** -0.5)
    inputs = [x, weight] + ([b.weight(after)] if b.below(2) else [])
    y = b.add("Conv", inputs, (n, after, *out), group=group, strides=strides, dilations=dilations, pads=pads)
    _maybe_normalize(b, y)


def _maybe_normalize(b: Builder, y: str) -> None:
    channels = b.shapes[y][1]
    if b.below(2):
        variance = b.constant(b.random.random(channels).astype(np.float32) + 0.5)
        mean = [b.weight(channels), b.weight(channels), b.weight(channels)]
        y = b.add("BatchNormalization", [y, *mean, variance], b.shapes[y])
    if b.below(2):
        b.add(b.choose(["Relu", "Sigmoid", "HardSwish"]), [y], b.shapes[y])


def _conv_transpose(b: Builder) -> None:
    x = b.pick(4)
    if not x:
        return
    n, channels, h, w = b.shapes[x]
    after, kernel, stride = b.choose([1, 3]), b.choose([2, 3]), b.choose([1, 2])
    pad = b.below(2)
    out = [(size - 1) * stride + kernel - 2 * pad for size in (h, w)]
    if min(out) > 0 and after * math.prod(out) * n <= _LARGEST:
        inputs = [x, b.weight(channels, after, kernel, kernel, scale=0.3), b.weight(after)]
        b.add("ConvTranspose", inputs, (n, after, *out), strides=[stride] * 2, pads=[pad] * 4)


def _pool(b: Builder) -> None:
    x = b.pick(3, 4)
    if not x:
        return
    n, channels, *sizes = b.shapes[x]
    kernel = [min(b.choose([2, 3]), size) for size in sizes]
    strides = [b.choose([1, 2]) for _ in sizes]
    pads = [b.below(2) if k > 1 else 0 for k in kernel] * 2
    out = [(size + 2 * pads[i] - kernel[i]) // strides[i] + 1 for i, size in enumerate(sizes)]
    op = b.choose(["MaxPool", "AveragePool"])
    extra = {"count_include_pad": b.below(2)} if op == "AveragePool" else {}
    b.add(op, [x], (n, channels, *out), kernel_shape=kernel, strides=strides, pads=pads, **extra)


def _global_pool(b: Builder) -> None:
    x = b.pick(3, 4)
    if x:
        shape = b.shapes[x]
        b.add(b.choose(["GlobalAveragePool", "GlobalMaxPool"]), [x], (*shape[:2], *(1 for _ in shape[2:])))


def _transpose(b: Builder) -> None:
    x = b.pick(2, 3, 4, 5)
    if x:
        order = [int(i) for i in b.random.permutation(len(b.shapes[x]))]
        b.add("Transpose", [x], tuple(b.shapes[x][i] for i in order), perm=order)


def _reshape(b: Builder) -> None:
    x = b.pick() or ""
    shape = list(b.shapes[x])
    for _ in range(1 + b.below(2)):
        i = b.below(len(shape))
        if len(shape) > 1 and b.below(2):
            i = min(i, len(shape) - 2)
            shape[i : i + 2] = [shape[i] * shape[i + 1]]
        elif len(shape) < 5:
            divisor = b.choose([d for d in range(1, shape[i] + 1) if shape[i] % d == 0])
            shape[i : i + 1] = [divisor, shape[i] // divisor]
    b.add("Reshape", [x, b.constant(shape, np.int64)], tuple(shape))


def _flatten(b: Builder) -> None:
    x = b.pick(3, 4)
    if not x:
        return
    n, *rest = b.shapes[x]
    features = math.prod(rest)
    flat = b.add("Flatten", [x], (n, features))
    if b.below(2):
        after = b.choose([3, 8])
        scale = features**-0.5
        b.add("Gemm", [flat, b.weight(after, features, scale=scale), b.weight(after)], (n, after), transB=1)


def _matmul(b: Builder) -> None:
    x = b.pick(2, 3, 4)
    if not x:
        return
    shape = b.shapes[x]
    after = b.choose([2, 5])
    constant = b.weight(shape[-1], after, scale=shape[-1] ** -0.5)
    y = b.add("MatMul", [x, constant], (*shape[:-1], after))
    if b.below(2):
        b.add("Add", [y, b.weight(after)], (*shape[:-1], after))


def _attention(b: Builder) -> None:
    x = b.pick(3, 4)
    if not x:
        return
    shape = b.shapes[x]
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = b.add("Transpose", [x], (*shape[:-2], shape[-1], shape[-2]), perm=order)
    scores = b.add("MatMul", [x, turned], (*shape[:-1], shape[-2]))
    weights = b.add("Softmax", [scores], b.shapes[scores], axis=-1)
    b.add("MatMul", [weights, x], shape)


def _concat(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    axis = b.below(len(shape))
    rest = (*shape[:axis], *shape[axis + 1 :])
    fitting = [n for n, s in b.shapes.items() if len(s) == len(shape) and (*s[:axis], *s[axis + 1 :]) == rest]
    chosen = [x, b.choose(fitting)]
    size = sum(b.shapes[name][axis] for name in chosen)
    if math.prod(shape) // shape[axis] * size <= _LARGEST:
        b.add("Concat", chosen, (*shape[:axis], size, *shape[axis + 1 :]), axis=axis)


def _split(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    axis = b.below(len(shape))
    if shape[axis] > 1:
        first = 1 + b.below(shape[axis] - 1)
        sizes = [first, shape[axis] - first]
        parts = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
        b.add("Split", [x, b.constant(sizes, np.int64)], *parts, axis=axis)


def _slice(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    axis = b.below(len(shape))
    start, step = b.below(shape[axis]), b.choose([1, 1, 2, -1])
    size = len(range(shape[axis])[start:None:step])
    ends = -(1 << 31) if step < 0 else 1 << 31
    inputs = [x, *(b.constant([v], np.int64) for v in (start, ends, axis, step))]
    b.add("Slice", inputs, (*shape[:axis], size, *shape[axis + 1 :]))


def _pad(b: Builder) -> None:
    x = b.pick(2, 3, 4)
    if not x:
        return
    shape = b.shapes[x]
    pads = [b.below(3) if size > 2 else 0 for size in shape * 2]
    new = tuple(size + pads[i] + pads[i + len(shape)] for i, size in enumerate(shape))
    if math.prod(new) <= _LARGEST:
        mode = b.choose(["constant", "constant", "reflect", "edge"])
        inputs = [x, b.constant(pads, np.int64)] + ([b.constant(0.5, np.float32)] if mode == "constant" else [])
        b.add("Pad", inputs, new, mode=mode)


def _reduce(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    axes = sorted({b.below(len(shape)) for _ in range(2)})
    keep = b.below(2) or len(axes) == len(shape)
    new = [1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes]
    b.add(
        b.choose(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"]), [x], tuple(new), axes=axes, keepdims=int(keep)
    )


def _gather(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    axis = b.below(len(shape))
    form = b.choose([(2,), (3,), (1, 2)] if len(shape) < 5 else [(2,)])
    indices = b.random.integers(-shape[axis], shape[axis], form)
    new = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    if math.prod(new) <= _LARGEST:
        b.add("Gather", [x, b.constant(indices, np.int64)], new, axis=axis)


def _resize(b: Builder) -> None:
    x = b.pick(4)
    if not x:
        return
    n, channels, h, w = b.shapes[x]
    if n * channels * h * w * 4 <= _LARGEST:
        scales = b.constant([1, 1, 2, 2], np.float32)
        mode, how, near = b.choose([
            ("nearest", "asymmetric", "floor"), ("linear", "half_pixel", "floor"), ("linear", "align_corners", "floor"),
            ("nearest", "half_pixel", "round_prefer_floor"), ("linear", "asymmetric", "floor"),
        ])  # fmt: skip
        extra = {"mode": mode, "coordinate_transformation_mode": how, "nearest_mode": near}
        b.add("Resize", [x, "", scales], (n, channels, 2 * h, 2 * w), **extra)


def _depth_to_space(b: Builder) -> None:
    fitting = [name for name, shape in b.shapes.items() if len(shape) == 4 and shape[1] % 4 == 0]
    if fitting:
        x = b.choose(fitting)
        n, channels, h, w = b.shapes[x]
        b.add("DepthToSpace", [x], (n, channels // 4, 2 * h, 2 * w), blocksize=2, mode=b.choose(["DCR", "CRD"]))


def _layer_norm(b: Builder) -> None:
    x = b.pick(2, 3, 4) or b.pick() or ""
    size = b.shapes[x][-1]
    b.add("LayerNormalization", [x, b.weight(size), b.weight(size)], b.shapes[x], axis=-1)


def _instance_norm(b: Builder) -> None:
    x = b.pick(3, 4)
    if x:
        channels = b.shapes[x][1]
        b.add("InstanceNormalization", [x, b.weight(channels), b.weight(channels)], b.shapes[x])


def _prelu(b: Builder) -> None:
    x = b.pick(3, 4)
    if x:
        shape = b.shapes[x]
        b.add("PRelu", [x, b.weight(shape[1], *(1 for _ in shape[2:]))], shape)


def _squeeze(b: Builder) -> None:
    x = b.pick() or ""
    shape = b.shapes[x]
    ones = [i for i, size in enumerate(shape) if size == 1]
    if ones and len(shape) > 1 and b.below(2):
        axis = b.choose(ones)
        b.add("Squeeze", [x, b.constant([axis], np.int64)], (*shape[:axis], *shape[axis + 1 :]))
    elif len(shape) < 5:
        axis = b.below(len(shape) + 1)
        b.add("Unsqueeze", [x, b.constant([axis], np.int64)], (*shape[:axis], 1, *shape[axis:]))


STEPS: tuple[Callable[[Builder], None], ...] = (
    _unary, _clip, _softmax, _with_constant, _with_constant, _binary, _binary, _where, _conv, _conv, _conv,
    _conv_transpose, _pool, _pool, _global_pool, _transpose, _transpose, _reshape, _flatten, _matmul, _attention,
    _concat, _split, _slice, _pad, _reduce, _gather, _resize, _depth_to_space, _layer_norm, _instance_norm, _prelu,
    _squeeze,
)  # fmt: skip
