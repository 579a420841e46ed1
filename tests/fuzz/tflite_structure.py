"""Ops that move, choose and make elements for random TFLite graphs: each function adds an op, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.tflite_drawing import TfliteDrawing
from tests.fuzz.tflite_elementwise import ALL, FLOATS, NUMBERS

Step = Callable[[TfliteDrawing], Any]
_BY_BITS = {
    8: ("int8", "uint8"), 16: ("int16", "uint16", "float16"), 32: ("int32", "uint32", "float32"),
    64: ("int64", "uint64", "float64"),
}  # fmt: skip
_DIAGONAL = ("float32", "float32", "int32", "int64", "int16", "int8", "uint8")
"""LiteRT takes one byte for an element of any other type."""
_CASTS = ("float32", "int32", "int64", "bool", "uint8", "int8", "int16", "uint16", "uint32", "float16", "float64")


def _index_type(g: TfliteDrawing) -> str:
    return str(g.choose(("int32", "int32", "int64")))


def _factors(g: TfliteDrawing, size: int) -> list[int]:
    found = [d for d in range(1, size + 1) if size % d == 0] or [1]
    first = g.choose(found)
    return g.choose(([size], [first, size // first], [size // first, first], [1, size, 1], [first, 1, size // first]))


def _reshape(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    size = g.array(x).size
    shape = _factors(g, size) if size else g.choose(([0], list(g.array(x).shape), [0, 3], [-1]))
    shape = [] if size == 1 and g.below(2) else shape
    if shape and g.chance(0.5) and size:
        shape[g.below(len(shape))] = -1
    way = g.below(4)
    inputs = [x] if way == 0 else [x, g.choice(shape, shape[::-1])]
    if way == 3 and not shape:  # an empty shape tensor besides the options
        g.op("RESHAPE", inputs, new_shape=g.choose(([1], [1, 1], [])))
        return
    g.op("RESHAPE", inputs, **({"new_shape": shape} if way < 2 else {}))


def _transpose(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5, 6))
    rank = g.rank(x)
    orders = [[int(a) - rank * (g.below(6) == 0) for a in g.random.permutation(rank)] for _ in range(2)]
    g.op("TRANSPOSE", [x, g.choice(*orders)])


def _expand_dims(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    axis = g.below(g.rank(x) + 1) - (g.rank(x) + 1) * g.below(2)
    other = g.below(g.rank(x) + 1)
    spread = g.below(2)
    g.op("EXPAND_DIMS", [x, g.choice(*([[axis], [other]] if spread else [axis, other]), dtype=_index_type(g))])


def _squeeze(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    if g.rank(x) and g.chance(0.5):
        x = g.new(g.choose(ALL), [1 if g.below(2) else n for n in g.array(x).shape])
    g.fix(x)
    ones = [i - g.rank(x) * g.below(2) for i, n in enumerate(g.array(x).shape) if n == 1]
    kept = ones[: g.below(len(ones) + 1)]
    is_open = g.is_dynamic() and (x not in g.inputs or any(isinstance(d, str) for d in g.inputs[x].dims))
    if is_open and not kept:
        return  # which axes it removes depends on sizes: an error, or said in the report
    g.op("SQUEEZE", [x], squeeze_dims=kept + kept[:1] * (g.below(5) == 0))


def _pack(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    same = [g.value((str(g.array(x).dtype),), shape=g.array(x).shape) for _ in range(g.below(3))]
    axis = g.below(g.rank(x) + 1) - (g.rank(x) + 1) * g.below(2)
    g.op("PACK", [x, *same], values_count=1 + len(same), axis=axis)


def _unpack(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    axis = g.axis(x)
    count = g.array(x).shape[axis]
    g.op("UNPACK", [x], *[str(g.array(x).dtype)] * count, num=count, axis=axis)


def _concatenation(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    axis, shape = g.axis(x), list(g.array(x).shape)
    others = []
    for _ in range(g.below(4)):
        shape[axis] = g.size()
        others.append(g.value((str(g.array(x).dtype),), shape=shape))
    act = g.choose(("NONE",) * 5 + ("RELU", "RELU6"))
    g.op("CONCATENATION", [x, *others], axis=axis, fused_activation_function=act)


def _split(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    axis = g.axis(x)
    size = g.array(x).shape[axis]
    count = g.choose([n for n in range(1, size + 1) if size % n == 0] or [1])
    shown = g.choose((axis, [axis]))
    g.op("SPLIT", [g.choice(shown), x], *[str(g.array(x).dtype)] * count, num_splits=count)


def _split_v(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    axis = g.axis(x)
    size = g.array(x).shape[axis]
    cuts = sorted(g.below(size + 1) for _ in range(g.below(3)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    shown = [*sizes]
    if g.chance(0.3):
        shown[g.below(len(shown))] = -1
    inputs = [x, g.choice(shown, sizes[::-1], dtype=_index_type(g)), g.choice(axis)]
    g.op("SPLIT_V", inputs, *[str(g.array(x).dtype)] * len(sizes), num_splits=len(sizes))


def _slice(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    shape = g.array(x).shape
    begin = [g.below(n + 1) if g.below(3) else 0 for n in shape]
    size = [-1 if g.below(4) == 0 else g.below(n - b + 1) for n, b in zip(shape, begin, strict=True)]
    dtype = _index_type(g)
    zero = [0] * len(shape)
    g.op("SLICE", [x, g.choice(begin, zero, dtype=dtype), g.choice(size, zero, dtype=dtype)])


def _sliced_axes(count: int, ellipsis: int, new: int, rank: int) -> list[int | None]:
    """The axis that each entry of a STRIDED_SLICE cuts; None where that is none."""
    whole = [None if (ellipsis | new) >> i & 1 else i for i in range(count)]
    cut = [i for i in whole if i is not None]
    skipped = max(rank - len(cut), 0) if ellipsis else 0
    after = ellipsis.bit_length() - 1 if ellipsis else count
    axes = {i: place + (skipped if i > after else 0) for place, i in enumerate(cut)}
    return [axes[i] if i in axes and axes[i] < rank else None for i in range(count)]


def _counted(shape: Sequence[int], axis: int | None, begin: int, end: int) -> int:
    """How many elements of an axis an entry takes; LiteRT leaves those beyond it unwritten."""
    if axis is None:
        return 1
    first = begin + shape[axis] * (begin < 0)
    return max(min(end, shape[axis]) - first, 0) if 0 <= first < shape[axis] else 0


def _strided_slice(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    shape = g.array(x).shape
    count = g.below(len(shape) + 2) or 1
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    for i in range(count):
        for name, share in zip(masks, (0.25, 0.25, 0.08, 0.1, 0.15), strict=True):
            masks[name] |= (1 << i) * g.chance(share)
    if bin(masks["ellipsis_mask"]).count("1") > 1:
        masks["ellipsis_mask"] = 0
    kept = masks["new_axis_mask"] & ~masks["ellipsis_mask"]
    if count - bin(kept | masks["ellipsis_mask"]).count("1") > len(shape):  # LiteRT reads after its arrays of sizes
        return
    if 0 in shape:  # LiteRT reads an element after the last one
        masks["shrink_axis_mask"] = 0
    if masks["shrink_axis_mask"]:
        g.fix(x)
    begin, end, strides = ([], [], [])  # type: ignore[var-annotated]
    for i, axis in enumerate(_sliced_axes(count, masks["ellipsis_mask"], masks["new_axis_mask"], len(shape))):
        size = shape[axis] if axis is not None else 3
        shrinks = masks["shrink_axis_mask"] >> i & 1  # with a negative stride, LiteRT leaves the result as it is
        strides.append(g.choose((1, 1, 1, 2, 3) if shrinks else (1, 1, 1, 2, 3, -1, -2)))
        ends = sorted((g.below(size + 1), g.below(size + 1)))
        a, b = ends if strides[-1] > 0 else [e - 1 for e in ends[::-1]]
        a = min(a, size - 1) if shrinks and size else a  # LiteRT reads an element after the last one
        begin.append(a - size * (g.below(4) == 0))
        end.append(g.choose((b, b, b, b - size, 2**31 - 1, -(2**31))) if b >= 0 else g.choose((-(2**31), -size - 1)))
    offset = g.chance(0.08)
    sliced_axes = _sliced_axes(count, masks["ellipsis_mask"], masks["new_axis_mask"], len(shape))
    offset &= masks["ellipsis_mask"] == 0 and len(shape) - 1 in sliced_axes  # LiteRT reads counts where none are
    if offset:
        end = [_counted(shape, *entry) for entry in zip(sliced_axes, begin, end, strict=True)]
        masks["end_mask"] = 0  # LiteRT copies to the end of the axis, whatever the result has room for
    end = [min(e, 2**31 - 1) for e in end]
    share = g.choose((0.0, 0.0, 0.0, 0.5))
    ends = [g.choice(values, share=share) for values in (begin, end)]
    g.op("STRIDED_SLICE", [x, *ends, g.choice(strides, share=share / 3)], **masks, offset=offset)


def _paddings(g: TfliteDrawing, sizes: Sequence[int], largest: Callable[[int], int]) -> str:
    pads = [[g.below(largest(n) + 1), g.below(largest(n) + 1)] if g.below(3) else [0, 0] for n in sizes]
    dtype = _index_type(g)
    return g.choice(np.reshape(np.asarray(pads, dtype), [len(sizes), 2]), np.zeros([len(sizes), 2]), dtype=dtype)


def _pad(g: TfliteDrawing) -> None:
    x = g.value((*ALL,), (0, 1, 2, 3, 4, 5))
    pads = _paddings(g, g.array(x).shape, lambda _: 2)
    if g.below(2):
        g.op("PAD", [x, pads])
    else:
        g.op("PADV2", [x, pads, g.weight(str(g.array(x).dtype), g.choose(((), (1,))))])


def _mirror_pad(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    symmetric = g.below(2)
    pads = _paddings(g, g.array(x).shape, lambda n: max(min(n - 1 + symmetric, 2), 0))
    g.op("MIRROR_PAD", [x, pads], mode=("REFLECT", "SYMMETRIC")[symmetric])


def _tile(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    counts = [g.choose((1, 1, 2, 3, 0)) for _ in range(g.rank(x))]
    g.op("TILE", [x, g.choice(counts, counts[::-1], dtype=_index_type(g))])


def _reverse(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    first = g.below(g.rank(x))
    last = first + g.below(g.rank(x) - first)
    named = g.choose(([first], list(range(first, last + 1)), [first - g.rank(x)]))
    g.op("REVERSE_V2", [x, g.choice(named, [(a + 1) % g.rank(x) for a in named])])


def _reverse_sequence(g: TfliteDrawing) -> None:
    x = g.value(ALL, (2, 3, 4, 5))
    g.fix(x)
    batch, seq = (int(i) for i in g.random.permutation(g.rank(x))[:2])
    shape = g.array(x).shape
    lengths = g.random.integers(0, shape[seq] + 1, shape[batch])
    lengths = g.choice(lengths, lengths[::-1], dtype=_index_type(g))
    g.op("REVERSE_SEQUENCE", [x, lengths], seq_dim=seq, batch_dim=batch)


def _indices(g: TfliteDrawing, size: int, shape: Sequence[int], dtype: str = "") -> str:
    found = g.random.integers(0, max(size, 1), tuple(shape))
    return g.choice(found, np.flip(found), dtype=dtype or _index_type(g))


def _gather(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    axis, shape = g.axis(x), g.array(x).shape
    batch = g.below(axis % g.rank(x) + 1) if g.chance(0.3) else 0
    if batch:
        g.fix(x)
    dims = [*shape[:batch], *g.shape((0, 1, 1, 2))]
    indices = _indices(g, shape[axis], dims, g.choose(("int32", "int32", "int64", "int16")))
    g.op("GATHER", [x, indices], axis=axis, batch_dims=batch - len(dims) * (batch > 0 and g.below(4) == 0))


def _nd_indices(g: TfliteDrawing, shape: Sequence[int], depth: int, lead: Sequence[int]) -> np.ndarray[Any, Any]:
    columns = [g.random.integers(0, max(n, 1), tuple(lead)) for n in shape[:depth]]
    return np.stack(columns, -1) if columns else np.zeros([*lead, 0], np.int64)


def _gather_nd(g: TfliteDrawing) -> None:
    x = g.value(ALL, (1, 2, 3, 4, 5))
    depth = g.below(g.rank(x) + 1)
    found = _nd_indices(g, g.array(x).shape, depth, g.shape((0, 1, 1, 2)))
    g.op("GATHER_ND", [x, g.choice(found, found[::-1], dtype=_index_type(g))])


def _scatter_nd(g: TfliteDrawing) -> None:
    shape = g.shape((1, 2, 3))
    depth = 1 + g.below(len(shape))
    found = _nd_indices(g, shape, depth, g.shape((1, 1, 2)))
    updates = g.value(
        ("float32", "float32", "int32", "int64", "int8", "uint8", "bool"), shape=[*found.shape[:-1], *shape[depth:]]
    )
    g.fix(updates)
    g.op("SCATTER_ND", [g.choice(found, found[::-1]), updates, g.choice(shape)], str(g.array(updates).dtype))


def _sparse_to_dense(g: TfliteDrawing) -> None:
    shape = g.shape((1, 2, 3, 4))
    size = int(np.prod(shape))
    count = min(g.below(5), size)
    places = np.sort(g.random.permutation(size)[:count])
    indices = np.stack(np.unravel_index(places, shape), -1) if size else np.zeros([0, len(shape)])
    if len(shape) == 1 and g.below(2):
        indices = indices[:, 0]
    dtype, kind = g.choose(("float32", "int32", "int64", "int8", "uint8")), _index_type(g)
    values = g.weight(dtype, () if g.below(3) == 0 else [count])
    inputs = [g.choice(indices, dtype=kind), g.choice(shape, dtype=kind), values, g.weight(dtype, ())]
    g.op("SPARSE_TO_DENSE", inputs, dtype, validate_indices=bool(g.below(2)))


def _dynamic_update_slice(g: TfliteDrawing) -> None:
    x = g.value((*FLOATS, "int32", "int64", "int8", "bool"))
    shape = g.array(x).shape
    g.fix(x)
    update = g.weight(str(g.array(x).dtype), [g.below(n + 1) if n > 1 else n for n in shape])
    starts = [g.below(n + 3) - 1 for n in shape]
    g.op("DYNAMIC_UPDATE_SLICE", [x, update, g.choice(starts, [0] * len(shape), dtype=_index_type(g))])


def _embedding_lookup(g: TfliteDrawing) -> None:
    values = g.value(("float32", "float32", "int8", "uint8"), (2, 3, 4))
    if not g.array(values).shape[0]:  # LiteRT reads a row after the last one
        return
    g.fix(values)
    lookup = _indices(g, g.array(values).shape[0], [g.size()], "int32")
    g.op("EMBEDDING_LOOKUP", [lookup, values], str(g.array(values).dtype))


def _matrix_diag(g: TfliteDrawing) -> None:
    g.op("MATRIX_DIAG", [g.value(_DIAGONAL, (1, 2, 3, 4))])


def _matrix_set_diag(g: TfliteDrawing) -> None:
    x = g.value(_DIAGONAL, (2, 3, 4, 5))
    g.fix(x)
    *batch, rows, columns = g.array(x).shape
    g.op("MATRIX_SET_DIAG", [x, g.weight(str(g.array(x).dtype), [*batch, min(rows, columns)])])


def _space_to_depth(g: TfliteDrawing) -> None:
    block = g.choose((1, 2, 3))
    n, h, w, c = g.shape((4,))
    dtype = g.choose(("float32", "float32", "int32", "int64", "int8", "uint8"))
    if g.below(2):
        g.op("SPACE_TO_DEPTH", [g.value((dtype,), shape=[n, h * block, w * block, c])], block_size=block)
    else:
        g.op("DEPTH_TO_SPACE", [g.value((dtype,), shape=[n, h, w, min(c, 3) * block**2])], block_size=block)


def _space_to_batch(g: TfliteDrawing) -> None:
    shape = g.shape((3, 4, 4))
    dtype = g.choose(("float32", "float32", "int32", "int64", "int8", "uint8"))
    count = len(shape) - 2
    block = [g.choose((1, 2, 2, 3)) for _ in range(count)]
    ends = np.asarray([[g.below(3), g.below(3)] for _ in block])
    if g.below(2):
        spatial = [max(b * n - sum(e), 0) for b, n, e in zip(block, shape[1:-1], ends, strict=True)]
        x = g.value((dtype,), shape=[shape[0], *spatial, shape[-1]])
        g.op("SPACE_TO_BATCH_ND", [x, g.choice(block), g.choice(ends)])
    else:
        x = g.value((dtype,), shape=[shape[0] * int(np.prod(block)), *shape[1:]])
        g.op("BATCH_TO_SPACE_ND", [x, g.choice(block), g.choice(ends, 0 * ends)])


def _cast(g: TfliteDrawing) -> None:
    x = g.value((*ALL, "float64"))
    dtype = g.choose(_CASTS)
    kinds = {"in_data_type": str(g.array(x).dtype).upper(), "out_data_type": dtype.upper()} if g.below(2) else {}
    g.op("CAST", [x], dtype, **kinds)


def _bitcast(g: TfliteDrawing) -> None:
    x = g.value((*NUMBERS, "uint16", "uint64", "float64"))
    if x not in (*g.inputs, *g.constants):  # floats that were computed differ in their last bits
        x = g.new(str(g.array(x).dtype), g.array(x).shape)
    bits = 8 * g.array(x).itemsize
    other = g.choose(tuple(_BY_BITS))
    if other > bits:
        x = g.value((str(g.array(x).dtype),), shape=[*g.shape((0, 1, 2)), other // bits])
    g.op("BITCAST", [x], g.choose(_BY_BITS[other]))


def _shape(g: TfliteDrawing) -> None:
    dtype = _index_type(g)
    g.op("SHAPE", [g.value(ALL)], dtype, out_type=dtype.upper())


def _rank(g: TfliteDrawing) -> None:
    g.op("RANK", [g.value(ALL)], "int32")


def _fill(g: TfliteDrawing) -> None:
    x = g.value(ALL, (0,))
    shape = list(g.shape((0, 1, 2, 3, 4)))
    g.op("FILL", [g.choice(shape, shape[::-1], dtype=_index_type(g)), x], str(g.array(x).dtype))


def _range(g: TfliteDrawing) -> None:
    dtype = g.choose(("int32", "int32", "int64", "float32"))
    delta = g.choose((1, 2, 3, -1, -2, 0.5)) if dtype == "float32" else g.choose((1, 2, 3, -1, -2))
    start, length = g.below(5) - 2, g.below(8)
    ends = [start, start + delta * length]
    g.op(
        "RANGE",
        [g.choice(e, e + delta if i else e - delta, dtype=dtype) for i, e in enumerate([*ends])]
        + [g.choice(delta, dtype=dtype)],
    )


def _one_hot(g: TfliteDrawing) -> None:
    dtype = g.choose(("float32", "int32", "int64", "int8", "uint8", "bool", "int16"))
    indices = g.value(("int32", "int64"), (0, 1, 2, 3))
    axis = g.below(g.rank(indices) + 2) - 1
    ends = [g.weight(dtype, ()) for _ in range(2)]
    g.op("ONE_HOT", [indices, g.choice(g.below(5), 3), *ends], dtype, axis=axis)


def _where(g: TfliteDrawing) -> None:
    g.op("WHERE", [g.value(("bool", "bool", *NUMBERS))], "int64")


def _unique(g: TfliteDrawing) -> None:
    x, dtype = g.value(NUMBERS, (1,)), _index_type(g)
    g.op("UNIQUE", [x], str(g.array(x).dtype), dtype, idx_out_type=dtype.upper())


def _broadcast_to(g: TfliteDrawing) -> None:
    x = g.value(ALL)
    shape = [g.size() if n == 1 else n for n in g.array(x).shape]
    shape = [*g.shape((0, 0, 1)), *shape]
    g.op("BROADCAST_TO", [x, g.choice(shape, dtype=_index_type(g))])


def _broadcast_args(g: TfliteDrawing) -> None:
    dtype = _index_type(g)
    shape = g.shape((0, 1, 2, 3, 4))
    other = [1 if g.below(3) == 0 else n for n in shape][g.below(len(shape) + 1) :]
    g.op("BROADCAST_ARGS", [g.choice(shape, dtype=dtype), g.choice(other, [1] * len(other), dtype=dtype)])


def _dilate(g: TfliteDrawing) -> None:
    x = g.value(NUMBERS, (1, 2, 3, 4, 5))
    by = [g.choose((1, 2, 3)) for _ in range(g.rank(x))]
    g.op("DILATE", [x, g.choice(by), g.weight(str(g.array(x).dtype), ())])


def _stablehlo_pad(g: TfliteDrawing) -> None:
    x = g.value(NUMBERS, (1, 2, 3, 4))
    count = g.rank(x)
    low, high = ([g.below(5) - 2 for _ in range(count)] for _ in range(2))
    within = [g.below(3) for _ in range(count)]
    spread = [max((n - 1) * (gap + 1) + 1, 0) for n, gap in zip(g.array(x).shape, within, strict=True)]
    high = [max(b, 1 - a - n) for n, a, b in zip(spread, low, high, strict=True)]
    fill = g.weight(str(g.array(x).dtype), ())
    g.op("STABLEHLO_PAD", [x, fill], edge_padding_low=low, edge_padding_high=high, interior_padding=within)


def _stablehlo_gather(g: TfliteDrawing) -> None:
    x = g.value(("float32", "int32", "int64", "bool", "int8"), (1, 2, 3))
    if x not in (*g.inputs, *g.constants):  # LiteRT reads beyond an operand that is smaller than the window
        x = g.new(str(g.array(x).dtype), g.array(x).shape)
    g.fix(x)
    shape, rank = g.array(x).shape, g.rank(x)
    count = 1 + g.below(rank)
    mapped = [int(a) for a in sorted(g.random.permutation(rank)[:count])]
    sizes = [1 + g.below(n) if n else 0 for n in shape]
    collapsed = [a for a in mapped if sizes[a] == 1 and g.below(2)]
    lead = g.shape((1, 1, 2))
    indices = np.stack([g.random.integers(0, max(shape[a], 1), lead) for a in mapped], -1)
    kept = rank - len(collapsed)
    offsets = list(range(len(lead), len(lead) + kept)) if g.below(2) else list(range(kept))
    g.op(
        "STABLEHLO_GATHER", [x, g.choice(indices, dtype=_index_type(g))], offset_dims=offsets,
        rank=len(lead) + kept, collapsed_slice_dims=collapsed, start_index_map=mapped, index_vector_dim=len(lead),
        slice_sizes=sizes,
    )  # fmt: skip


def _hashtable_lookup(g: TfliteDrawing) -> None:
    values = g.value(("float32", "int32"), (1, 2, 3))
    g.fix(values, 0)
    count = g.array(values).shape[0]
    keys = np.sort(g.random.permutation(12)[:count])
    lookup = g.choice(g.random.integers(0, 12, g.size()))
    g.op("HASHTABLE_LOOKUP", [lookup, g.choice(keys), values], str(g.array(values).dtype), "uint8")


STEPS: dict[str, Step] = {
    "RESHAPE": _reshape, "TRANSPOSE": _transpose, "EXPAND_DIMS": _expand_dims, "SQUEEZE": _squeeze, "PACK": _pack,
    "UNPACK": _unpack, "CONCATENATION": _concatenation, "SPLIT": _split, "SPLIT_V": _split_v, "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice, "PAD": _pad, "PADV2": _pad, "MIRROR_PAD": _mirror_pad, "TILE": _tile,
    "REVERSE_V2": _reverse, "REVERSE_SEQUENCE": _reverse_sequence, "GATHER": _gather, "GATHER_ND": _gather_nd,
    "SCATTER_ND": _scatter_nd, "SPARSE_TO_DENSE": _sparse_to_dense, "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "EMBEDDING_LOOKUP": _embedding_lookup, "MATRIX_DIAG": _matrix_diag, "MATRIX_SET_DIAG": _matrix_set_diag,
    "SPACE_TO_DEPTH": _space_to_depth, "DEPTH_TO_SPACE": _space_to_depth, "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _space_to_batch, "CAST": _cast, "BITCAST": _bitcast, "SHAPE": _shape, "RANK": _rank,
    "FILL": _fill, "RANGE": _range, "ONE_HOT": _one_hot, "WHERE": _where, "UNIQUE": _unique,
    "BROADCAST_TO": _broadcast_to, "BROADCAST_ARGS": _broadcast_args, "DILATE": _dilate,
    "STABLEHLO_PAD": _stablehlo_pad, "STABLEHLO_GATHER": _stablehlo_gather, "HASHTABLE_LOOKUP": _hashtable_lookup,
}  # fmt: skip
