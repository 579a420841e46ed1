"""Steps of random graphs: transpose, reshape, concat, split, slice, pad, gather, scatter, broadcast, sort."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.building import INT64, Builder


def _transpose(b: Builder) -> None:
    x = b.pick(2, 3, 4, 5)
    if x:
        b.add("Transpose", [x], perm=[int(i) for i in b.random.permutation(len(b.shape(x)))])


def _channels_last(b: Builder) -> None:
    """Transpose to channels-last, an op, and transpose back."""
    x = b.pick(4)
    y = x and b.add("Transpose", [x], perm=[0, 2, 3, 1])
    if y:
        channels = b.shape(y)[-1]
        kind = b.below(3)
        if kind == 0:
            y = b.add("MatMul", [y, b.weight(channels, channels, scale=channels**-0.5)])
        elif kind == 1:
            y = b.add("Add", [y, b.weight(channels)])
        else:
            y = b.add("Softmax", [y], axis=-1)
        b.add("Transpose", [y], perm=[0, 3, 1, 2])


def _reshape(b: Builder) -> None:
    x = b.pick()
    shape = list(b.shape(x))
    if not shape:
        return
    wanted = [b.fixed(shape, i) for i in range(len(shape))]
    i = b.below(len(shape))
    if len(shape) > 1 and b.below(2):
        i = min(i, len(shape) - 2)
        size = -1 if b.symbols else shape[i] * shape[i + 1]
        wanted = [*wanted[:i], size, *shape[i + 2 :]]
    elif len(shape) < 5:
        divisor = b.choose([d for d in range(1, shape[i] + 1) if shape[i] % d == 0])
        rest = [divisor, -1] if b.below(2) else [-1, shape[i] // divisor]
        wanted = [*wanted[:i], *rest, *shape[i + 1 :]]
    b.add("Reshape", [x, b.ints(*wanted)])


def _reshape_by_shape(b: Builder) -> None:
    """Reshape to sizes that are computed from a Shape, as in exported models."""
    x = b.pick(2, 3, 4)
    if x and (sizes := b.add("Shape", [x])):
        first = b.add("Gather", [sizes, b.constant([0], np.int64)], axis=0)
        wanted = first and b.add("Concat", [first, b.ints(-1)], axis=0)
        if wanted:
            size = math.prod(b.shape(x)[1:])
            b.add("Reshape", [x, wanted], shape=(b.shape(x)[0], size))


def _flatten(b: Builder) -> None:
    x = b.pick(2, 3, 4, 5)
    if x:
        b.add("Flatten", [x], axis=b.choose([1, 1, 1, 0, 2]))


def _concat(b: Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    if shape:
        axis = b.below(len(shape))
        rest = (*shape[:axis], *shape[axis + 1 :])
        fitting = [n for n in b.values(len(shape)) if (*b.shape(n)[:axis], *b.shape(n)[axis + 1 :]) == rest]
        chosen = [x, *(b.choose(fitting) for _ in range(1 + b.below(2)))]
        if not b.symbols and not b.below(4):
            chosen.append(b.weight(*shape[:axis], 2, *shape[axis + 1 :]))
        b.random.shuffle(chosen)
        b.add("Concat", chosen, axis=axis)


def _split(b: Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    axis = b.below(max(1, len(shape)))
    if not shape or shape[axis] < 2:
        return
    if shape[axis] % 2 == 0 and b.below(2):
        extra = {"num_outputs": 2} if b.opset >= 18 else {}
        b.add("Split", [x], 2, axis=axis, **extra)
    else:
        first = 1 + b.below(shape[axis] - 1)
        b.add("Split", [x, b.ints(first, shape[axis] - first)], 2, axis=axis)


def _slice(b: Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    if not shape:
        return
    axes = sorted({b.below(len(shape)) for _ in range(1 + b.below(2))})
    steps = [b.choose([1, 1, 1, 2, -1, -2]) for _ in axes]
    starts = [b.below(shape[a]) - shape[a] * b.below(2) for a in axes]
    ends = [b.choose([1 << 31, shape[a], -1]) if s > 0 else -(1 << 31) for a, s in zip(axes, steps, strict=True)]
    b.add("Slice", [x, *(b.ints(*v) for v in (starts, ends, axes, steps))])


def _pad(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4, 5)
    if not x:
        return
    shape = b.shape(x)
    mode = b.choose(["constant", "constant", "constant", "reflect", "edge"])
    pads = [b.choose([0, 0, 1, 2]) if size > 2 else 0 for size in shape * 2]
    if mode == "constant" and not b.below(4):
        pads = [b.choose([0, 1, -1]) if size > 2 else 0 for size in shape * 2]
    value = [b.constant(b.choose([0.0, 0.5]), np.float32)] if mode == "constant" and b.below(2) else []
    b.add("Pad", [x, b.ints(*pads), *value], mode=mode)


def _pad_for_conv(b: Builder) -> None:
    x = b.pick(4)
    y = x and b.add("Pad", [x, b.ints(0, 0, 0, 1, 0, 0, 1, 1)])
    if y:
        channels = b.shape(y)[1]
        b.add("Conv", [y, b.weight(3, channels, 2, 2, scale=0.3)], strides=[b.choose([1, 2])] * 2)


def _gather(b: Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    if shape:
        axis = b.below(len(shape))
        indices = b.random.integers(-shape[axis], shape[axis], b.choose([(), (2,), (3,), (1, 2)]))
        b.add("Gather", [x, b.constant(indices, np.int64)], axis=axis)


def _gather_at_run_time(b: Builder) -> None:
    x, indices = b.pick(1, 2, 3), b.pick(dtype=INT64)
    if x and indices and indices in b.inputs:
        axis = b.below(len(b.shape(x)))
        size = b.constant(b.shape(x)[axis], np.int64)
        if b.below(2):
            b.add("Gather", [x, b.add("Mod", [indices, size])], axis=axis)
        elif indices := b.add("Mod", [indices, size]):
            b.add("GatherElements", [x, indices], axis=axis)


def _gather_nd(b: Builder) -> None:
    x = b.pick(2, 3, 4)
    if x:
        shape = b.shape(x)
        depth = 1 + b.below(len(shape) - 1)
        rows = [[b.below(shape[k]) for k in range(depth)] for _ in range(3)]
        if b.below(2):
            b.add("GatherND", [x, b.constant(rows, np.int64)])
        elif len({tuple(row) for row in rows}) == 3 and not b.symbols:
            updates = b.weight(3, *shape[depth:])
            b.add("ScatterND", [x, b.constant(rows, np.int64), updates])


def _gather_elements(b: Builder) -> None:
    x = b.pick(1, 2, 3)
    if x and not b.symbols:
        axis = b.below(len(b.shape(x)))
        indices = b.random.integers(-b.shape(x)[axis], b.shape(x)[axis], b.shape(x))
        b.add("GatherElements", [x, b.constant(indices, np.int64)], axis=axis)


def _squeeze(b: Builder) -> None:
    x = b.pick()
    shape = b.shape(x)
    ones = [i for i, size in enumerate(shape) if size == 1]
    if ones and len(shape) > 1 and b.below(2):
        b.add("Squeeze", [x, b.ints(b.choose(ones))])
    elif len(shape) < 5:
        axes = sorted({b.below(len(shape) + 1) for _ in range(1 + (len(shape) < 4 and b.below(2)))})
        b.add("Unsqueeze", [x, b.ints(*axes)])


def _expand(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4)
    if x:
        shape = b.shape(x)
        wanted = [b.choose([2, 3]) if size == 1 else b.choose([1, 1 if b.symbols else size]) for size in shape]
        wanted = [b.choose([1, 2]), *wanted] if len(shape) < 4 and b.below(2) else wanted
        b.add("Expand", [x, b.ints(*wanted)])


def _tile(b: Builder) -> None:
    x = b.pick(1, 2, 3, 4)
    if x:
        b.add("Tile", [x, b.ints(*(b.choose([1, 1, 2, 3]) for _ in b.shape(x)))])


def _trilu(b: Builder) -> None:
    x = b.pick(2, 3, 4)
    if x and b.opset >= 14:
        b.add("Trilu", [x, b.constant(b.choose([-1, 0, 1]), np.int64)], upper=b.below(2))


def _top_k(b: Builder) -> None:
    x = b.choose(b.inputs)  # of computed values, the order of nearly equal elements would depend on rounding
    shape = b.shape(x)
    if shape and x in b.values():
        axis = b.below(len(shape))
        b.add("TopK", [x, b.ints(1 + b.below(shape[axis]))], 2, axis=axis, largest=b.below(2))


STEPS: tuple[Callable[[Builder], None], ...] = (
    _transpose, _transpose, _transpose, _channels_last, _reshape, _reshape, _reshape_by_shape, _flatten, _concat,
    _concat, _split, _slice, _slice, _pad, _pad, _pad_for_conv, _gather, _gather_at_run_time, _gather_nd,
    _gather_elements, _squeeze, _squeeze, _expand, _tile, _trilu, _top_k,
)  # fmt: skip
