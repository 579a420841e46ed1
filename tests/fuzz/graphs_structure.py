"""Ops on shapes, indices and order for random ONNX graphs: each function adds a node, or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.drawing import ALL, FLOATS, NUMBERS
from tests.fuzz.graphs_onnx import Drawing

Step = Callable[[Drawing], Any]
_SOME = (1, 2, 3, 4, 5)
_FAR = (2**31 - 1, 2**63 - 1, -(2**31), -(2**63))


def _reshape(g: Drawing) -> None:
    x = g.value(ALL)
    shape = list(g.array(x).shape)
    way = g.below(6)
    if way == 0:
        target = [-1]
    elif way == 1 and shape:
        target = [*([0] * (len(shape) - 1)), -1]
    elif way == 2 and len(shape) > 1:
        at = g.below(len(shape) - 1)
        target = [*([0] * at), -1, *shape[at + 2 :]]
    elif way == 3:
        target = [*shape, 1] if g.below(2) else [1, *shape]
    else:
        target = _factored(g, math.prod(shape))
        if target and g.below(2):
            target[g.below(len(target))] = -1
    g.node("Reshape", [x, g.constant(target, np.int64)], allowzero=int(0 in shape and 0 not in target))


def _factored(g: Drawing, count: int) -> list[int]:
    """Sizes whose product is ``count``."""
    sizes = []
    for factor in (2, 3, 2, 5):
        if count and count % factor == 0 and g.below(2):
            sizes.append(factor)
            count //= factor
    return [*sizes, count]


def _reshape_like(g: Drawing) -> None:
    """Reshape to a shape that is computed from another value's."""
    x = g.value(ALL, _SOME)
    sizes = g.node("Shape", [x], **({"start": 0, "end": 1} if g.opset >= 15 else {}))
    if sizes and g.opset >= 15:
        shape = g.node("Concat", [sizes[0], g.constant([-1], np.int64)], axis=0)
        g.node("Reshape", [x, shape[0]])


def _transpose(g: Drawing) -> None:
    x = g.value(ALL, (1, 2, 3, 3, 4, 4, 5))
    perm = list(range(g.rank(x)))
    g.random.shuffle(perm)
    g.node("Transpose", [x], **({"perm": perm} if g.chance(0.9) else {}))


def _squeeze(g: Drawing) -> None:
    x = g.value(ALL, fits=lambda a: 1 in a.shape)
    ones = [i for i, size in enumerate(g.array(x).shape) if size == 1]
    if ones and g.chance(0.8):
        axes = [i - g.rank(x) * g.below(2) for i in ones if g.below(2)] or ones[:1]
        g.node("Squeeze", [x, g.constant(axes, np.int64)])
    else:
        g.node("Squeeze", [x])


def _unsqueeze(g: Drawing) -> None:
    x = g.value(ALL)
    rank = g.rank(x) + 1 + g.below(2)
    axes = sorted({g.below(rank) for _ in range(rank - g.rank(x))})
    if len(axes) == rank - g.rank(x):
        g.node("Unsqueeze", [x, g.constant([a - rank * g.below(2) for a in axes], np.int64)])


def _flatten(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    g.node("Flatten", [x], axis=g.below(g.rank(x) + 1))


def _expand(g: Drawing) -> None:
    x = g.value(ALL)
    shape = [g.size() if size == 1 and g.below(2) else g.choose((1, size)) for size in g.array(x).shape]
    shape = [*(g.size() for _ in range(g.below(2))), *shape]
    g.node("Expand", [x, g.constant(shape, np.int64)])


def _expand_like(g: Drawing) -> None:
    x = g.value(ALL)
    if shape := g.node("Shape", [x]):
        if g.below(2):
            g.node("Expand", [g.partner(x), shape[0]])
        else:
            g.node("ConstantOfShape", [shape[0]])


def _tile(g: Drawing) -> None:
    x = g.value(ALL)
    g.node("Tile", [x, g.constant([g.choose((1, 1, 2, 3)) for _ in range(g.rank(x))], np.int64)])


def _concat(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    axis, dtype, shape = g.axis(x), str(g.array(x).dtype), list(g.array(x).shape)
    others = []
    for _ in range(g.below(3)):
        shape[axis] = g.size()
        others.append(g.value((dtype,), shape=shape))
    names = [x, *others]
    g.random.shuffle(names)
    g.node("Concat", names, axis=axis)


def _split(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    axis = g.axis(x)
    size = g.array(x).shape[axis]
    if g.below(2):
        first = g.below(size + 1)
        g.node("Split", [x, g.constant([first, size - first], np.int64)], 2, axis=axis)
    else:
        parts = g.choose([n for n in (1, 2, 3, 4) if n <= max(size, 1)])
        g.node("Split", [x], parts, axis=axis, **({"num_outputs": parts} if g.opset >= 18 else {}))


def _slice(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    axes = sorted({g.below(g.rank(x)) for _ in range(1 + g.below(2))})
    starts, ends, steps = [], [], []
    for axis in axes:
        size = g.array(x).shape[axis]
        step = g.choose((1, 1, 1, 2, -1, -2, 3))
        low, high = (g.choose((g.below(size + 2), -g.below(size + 2), g.choose(_FAR))) for _ in range(2))
        if g.chance(0.6):
            low, high = (0, g.choose((size, 2**63 - 1))) if step > 0 else (size - 1, g.choose((-size - 1, -(2**63))))
            low += int(g.chance(0.5) and step > 0)
        starts, ends, steps = [*starts, low], [*ends, high], [*steps, step]
    dtype = np.int64
    operands = [g.constant(v, dtype) for v in (starts, ends, [a - g.rank(x) * g.below(2) for a in axes], steps)]
    g.node("Slice", [x, *operands])


def _slice_at(g: Drawing) -> None:
    """Slice whose bounds are inputs."""
    x = g.value(ALL, _SOME)
    size = g.array(x).shape[0]
    g.node("Slice", [x, g.given([g.below(size + 1)]), g.given([g.below(size + 2)]), g.constant([0], np.int64)])


def _indices(g: Drawing, size: int, shape: Sequence[int]) -> str:
    """Indices of elements of an axis of this size: a constant, or an input."""
    dtype = g.choose(("int64", "int64", "int32"))
    negative = g.chance(0.3)
    low = -size if negative else 0
    return g.new(dtype, shape, low, max(size - 1, low))


def _gather(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    axis = g.axis(x)
    g.node("Gather", [x, _indices(g, g.array(x).shape[axis], g.shape((0, 0, 1, 1, 2, 3)))], axis=axis)


def _gather_elements(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    axis = g.axis(x)
    shape = list(g.array(x).shape)
    shape[axis] = g.size()
    g.node("GatherElements", [x, _indices(g, g.array(x).shape[axis], shape)], axis=axis)


def _gather_nd(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    depth = 1 + g.below(g.rank(x))
    least = min(g.array(x).shape[:depth])
    low = -least if g.chance(0.3) else 0
    indices = g.weight("int64", [*g.shape((0, 1, 2)), depth], low, max(least - 1, low))
    g.node("GatherND", [x, indices], batch_dims=0)


def _scatter_elements(g: Drawing) -> None:
    x = g.value(("float32", "float32", "int32", "int64"), _SOME)
    axis = g.axis(x)
    shape, size = list(g.array(x).shape), g.array(x).shape[axis]
    shape[axis] = g.below(size + 1) or 1
    picked = np.argsort(g.random.random(g.array(x).shape), axis=axis).take(range(min(shape[axis], size)), axis=axis)
    updates = g.value((str(g.array(x).dtype),), shape=picked.shape)
    reduction = {"reduction": g.choose(("none", "add", "mul"))} if g.opset >= 16 else {}
    g.node("ScatterElements", [x, g.constant(picked, np.int64), updates], axis=axis, **reduction)


def _scatter_nd(g: Drawing) -> None:
    x = g.value(("float32", "float32", "int32", "int64"), _SOME)
    shape = g.array(x).shape
    count = g.below(shape[0] + 1)
    rows = g.random.permutation(shape[0])[:count].reshape(-1, 1)
    updates = g.value((str(g.array(x).dtype),), shape=(count, *shape[1:]))
    reduction = {"reduction": g.choose(("none", "add"))} if g.opset >= 16 else {}
    g.node("ScatterND", [x, g.constant(rows, np.int64), updates], **reduction)


def _one_hot(g: Drawing) -> None:
    depth = 1 + g.below(6)
    indices = g.new(g.choose(("int64", "int32")), g.shape((0, 1, 2, 3)), 0, depth)
    values = g.constant([0, 1], g.choose(("float32", "int64", "int32")))
    g.node("OneHot", [indices, g.constant(depth, np.int64), values], axis=g.choose((-1, 0)))


def _top_k(g: Drawing) -> None:
    x = g.value(("float32", "float32", "int64", "int32"), _SOME)
    axis = g.axis(x)
    count = g.below(g.array(x).shape[axis] + 1)
    g.node("TopK", [x, g.constant([count], np.int64)], 2, axis=axis, largest=g.below(2), sorted=1)


def _pad(g: Drawing) -> None:
    x = g.value((*FLOATS, "int32", "int64", "int8", "uint8"), _SOME)
    mode = g.choose(("constant", "constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else [])))
    amounts = [g.choose((0, 0, 1, 2)) for _ in range(2 * g.rank(x))]
    if mode == "constant" and g.chance(0.15):
        amounts[g.below(len(amounts))] = -1
    value = [g.constant(g.choose((0, 1, 3)), g.array(x).dtype)] if mode == "constant" and g.below(2) else []
    g.node("Pad", [x, g.constant(amounts, np.int64), *value], mode=mode)


def _shape(g: Drawing) -> None:
    x = g.value(ALL)
    bounds = {"start": g.below(3) - 1, "end": g.choose((1, 2, -1))} if g.opset >= 15 and g.below(2) else {}
    g.node("Shape", [x], **bounds)


def _size(g: Drawing) -> None:
    g.node("Size", [g.value(ALL)])


def _range(g: Drawing) -> None:
    dtype = g.choose(("int64", "int32", "float32"))
    start, stop, step = g.choose(((0, 5, 1), (1, 8, 2), (5, 0, -1), (0, 0, 1), (3, 1, 1)))
    g.node("Range", [g.given(start, dtype), g.given(stop, dtype), g.constant(step, dtype)])


def _range_of(g: Drawing) -> None:
    """The positions along an axis of another value."""
    x = g.value(ALL, _SOME)
    if g.opset < 15:
        return
    axis = g.below(g.rank(x))
    sizes = g.node("Shape", [x], start=axis, end=axis + 1)
    stop = g.node("Squeeze", [sizes[0]])
    g.node("Range", [g.constant(0, np.int64), stop[0], g.constant(1, np.int64)])


def _trilu(g: Drawing) -> None:
    x = g.value((*FLOATS, "int64", "int32", "bool"), (2, 3, 4))
    g.node("Trilu", [x, g.constant(g.below(5) - 2, np.int64)], upper=g.below(2))


def _eye(g: Drawing) -> None:
    g.node("EyeLike", [g.value(("float32", "int32"), (2,))], k=g.below(3) - 1)


def _non_zero(g: Drawing) -> None:
    x = g.value(("float32", "int32", "int64", "bool"), _SOME)
    g.node("NonZero", [x])


def _compress(g: Drawing) -> None:
    x = g.value(ALL, _SOME)
    axis = g.axis(x)
    condition = g.new("bool", [g.array(x).shape[axis] if not g.sizes else 1])
    g.node("Compress", [x, condition], axis=axis)


def _unique(g: Drawing) -> None:
    g.node("Unique", [g.value(("float32", "int64"), (1,))], 4)


def _reverse(g: Drawing) -> None:
    x = g.value((*FLOATS, "int32", "int64"), (2, 3, 4))
    time = g.below(2)
    length, batch = g.array(x).shape[time], g.array(x).shape[1 - time]
    lengths = g.new("int64", [batch], min(1, length), length)
    g.node("ReverseSequence", [x, lengths], time_axis=time, batch_axis=1 - time)


def _blocks(g: Drawing) -> None:
    block = g.choose((1, 2, 2, 3))
    if g.below(2):
        x = g.value(("float32",), shape=(g.size(), g.size() * block * block, g.size(), g.size()))
        g.node("DepthToSpace", [x], blocksize=block, mode=g.choose(("DCR", "CRD")))
    else:
        x = g.value(("float32",), shape=(g.size(), g.size(), g.size() * block, g.size() * block))
        g.node("SpaceToDepth", [x], blocksize=block)


def _crop(g: Drawing) -> None:
    x = g.value(("float32", "int32"), _SOME)
    axis = g.axis(x)
    g.node("CenterCropPad", [x, g.constant([g.size()], np.int64)], axes=[axis])


def _like(g: Drawing) -> None:
    g.node("CastLike", [g.value(NUMBERS), g.value(("float32", "int32", "int64"))])


def _constant(g: Drawing) -> None:
    from onnx import numpy_helper

    array = g.random.integers(0, 5, g.shape((0, 1, 2))).astype(g.choose(("float32", "int64", "int32")))
    g.node("Constant", [], value=numpy_helper.from_array(array))


def _dropout(g: Drawing) -> None:
    g.node("Dropout", [g.value(FLOATS)], g.choose((1, 2)))


STEPS: dict[str, Step] = {
    "Reshape": _reshape, "Reshape of Shape": _reshape_like, "Transpose": _transpose, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Flatten": _flatten, "Expand": _expand, "ConstantOfShape": _expand_like, "Tile": _tile,
    "Concat": _concat, "Split": _split, "Slice": _slice, "Slice at inputs": _slice_at, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd, "OneHot": _one_hot, "TopK": _top_k, "Pad": _pad, "Shape": _shape, "Size": _size,
    "Range": _range, "Range of Shape": _range_of, "Trilu": _trilu, "EyeLike": _eye, "NonZero": _non_zero,
    "Compress": _compress, "Unique": _unique, "ReverseSequence": _reverse, "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks, "CenterCropPad": _crop, "CastLike": _like, "Constant": _constant, "Dropout": _dropout,
}  # fmt: skip
