"""Convolutions, pools, matrix products and resizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from tools.probe.case import FLOATS, INTEGERS, NUMBERS, Array, Case, draw, draw_small, evaluated, int32, sizes
from tools.probe.registry import probe

NONE = {"fused_activation_function": "NONE"}


def windows(size: int, window: int, stride: int, dilation: int, padding: str) -> tuple[int, int, int]:
    """The number of positions of a window along an axis, and the padding before and after."""
    span = (window - 1) * dilation + 1
    if padding == "VALID":
        return (size - span) // stride + 1, 0, 0
    count = -(-size // stride)
    total = max(0, (count - 1) * stride + span - size)
    return count, total // 2, total - total // 2


def patches(
    x: Array, window: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: str, fill: float
) -> Array:
    """Every window of the spatial axes: [batch, positions..., window..., channels]."""
    spatial = list(zip(x.shape[1:-1], window, strides, dilations, strict=True))
    counts = [windows(*s, padding) for s in spatial]
    x = np.pad(x, [(0, 0), *((before, after) for _, before, after in counts), (0, 0)], constant_values=fill)
    grids = [
        np.arange(count)[:, None] * stride + np.arange(size) * dilation
        for (count, _, _), (_, size, stride, dilation) in zip(counts, spatial, strict=True)
    ]
    n = len(grids)
    index: list[Any] = [slice(None)]
    for i, grid in enumerate(grids):
        positions = [grid.shape[0] if j == i else 1 for j in range(n)]
        index.append(grid.reshape(positions + [grid.shape[1] if j == i else 1 for j in range(n)]))
    return np.asarray(x[tuple(index)])


def convolve(x: Array, w: Array, strides: Sequence[int], dilations: Sequence[int], padding: str) -> Array:
    """Channels-last convolution; `w` is [out, window..., in / groups]."""
    n, inputs = x.ndim - 2, w.shape[-1]
    groups = x.shape[-1] // inputs
    p = patches(x, w.shape[1:-1], strides, dilations, padding, 0)
    outputs = w.shape[0] // groups
    parts = []
    for g in range(groups):
        part = p[..., g * inputs : (g + 1) * inputs]
        kernel = w[g * outputs : (g + 1) * outputs]
        parts.append(np.tensordot(part, kernel, (range(n + 1, 2 * n + 2), range(1, n + 2))))
    return np.concatenate(parts, -1)


Product = Callable[[Array, Array], Array]


def _convolved(
    op: str, element: str, operands: list[Array], product: Product, options: dict[str, Any], **extra: Any
) -> Iterator[Case]:
    """With and without bias; filter, bias and shape constant and computed. `product`: operand times filter."""
    types = {"T": element, "W": element, "B": element}
    types |= {"I": "int32"} if len(operands) == 4 else {}
    shape = frozenset({0}) if len(operands) == 4 else frozenset[int]()
    last, evaluate = len(operands) - 1, partial(_biased, product)
    fixed, free = ({"constant": "output_shape"},) * 2 if shape else ({"constant": "filter"}, {})
    for present, required in ((operands, {"required": "bias"}), ([*operands[:-1], None], {})):
        computed = [(frozenset({1, last}), {}), (frozenset[int](), {})] if shape else []
        for constants, constant in ((shape | {1, last}, fixed), (shape, free), *computed):
            known = constants if present[-1] is not None else constants - {last}
            extra_ = {**extra, **required, **constant}
            yield evaluated(op, types, present, evaluate, options=options, constants=known, extra=extra_)


def _biased(product: Product, *operands: Array | None) -> list[Array]:
    """Operands are (operand, filter, bias or None), of a transposed convolution (shape, filter, operand, bias)."""
    x, kernel, bias = (operands[2], operands[1], operands[3]) if len(operands) == 4 else operands
    assert x is not None and kernel is not None
    wide = product(x.astype(np.float64), kernel.astype(np.float64))
    return [(wide if bias is None else wide + bias.astype(np.float64)).astype(x.dtype)]


@probe("CONV_2D")
def conv_2d(op: str) -> Iterator[Case]:
    """Strides, dilations, groups."""
    for element in FLOATS:
        for (h, w), stride, dilation, padding in itertools.product(
            ((3, 3), (1, 1), (2, 5)), (1, 2), (1, 2), ("SAME", "VALID")
        ):
            for inputs, outputs, group in ((3, 5, 1), (4, 6, 2), (8, 8, 2), (1, 4, 1)):
                x = draw(element, (2, 11, 10, inputs))
                kernel = draw(element, (outputs, h, w, inputs // group), seed="w")
                bias = draw(element, (outputs,), seed="b")
                product = partial(convolve, strides=(stride,) * 2, dilations=(dilation,) * 2, padding=padding)
                options = _window_options(padding, stride, dilation)
                yield from _convolved(op, element, [x, kernel, bias], product, options, grouped=group > 1)


@probe("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(op: str) -> Iterator[Case]:
    """Multipliers, strides, dilations."""
    for element in FLOATS:
        for (h, w), stride, dilation, padding in itertools.product(
            ((3, 3), (1, 1), (5, 2)), (1, 2), (1, 2), ("SAME", "VALID")
        ):
            for channels, multiplier in ((4, 1), (3, 2), (1, 8)):
                x = draw(element, (2, 11, 10, channels))
                kernel = draw(element, (1, h, w, channels * multiplier), seed="w")
                bias = draw(element, (channels * multiplier,), seed="b")
                convolution = partial(convolve, strides=(stride,) * 2, dilations=(dilation,) * 2, padding=padding)
                product = partial(_with_filter_order, convolution, (3, 1, 2, 0))
                options = {**_window_options(padding, stride, dilation), "depth_multiplier": multiplier}
                yield from _convolved(op, element, [x, kernel, bias], product, options)


@probe("CONV_3D")
def conv_3d(op: str) -> Iterator[Case]:
    """The filter is [window, in, out]."""
    for element in FLOATS:
        for size, stride, dilation, padding in itertools.product((3, 1, 2), (1, 2), (1, 2), ("SAME", "VALID")):
            x = draw(element, (1, 6, 5, 7, 3))
            kernel, bias = draw(element, (size,) * 3 + (3, 4), seed="w"), draw(element, (4,), seed="b")
            convolution = partial(convolve, strides=(stride,) * 3, dilations=(dilation,) * 3, padding=padding)
            product = partial(_with_filter_order, convolution, (4, 0, 1, 2, 3))
            options: dict[str, Any] = {"padding": padding, **NONE}
            options |= {f"stride_{a}": stride for a in "dhw"} | {f"dilation_{a}_factor": dilation for a in "dhw"}
            yield from _convolved(op, element, [x, kernel, bias], product, options)


@probe("TRANSPOSE_CONV")
def transpose_conv(op: str) -> Iterator[Case]:
    """The result shape is an operand."""
    for element in FLOATS:
        for (h, w), stride, padding in itertools.product(((3, 3), (2, 4), (1, 1)), (1, 2), ("SAME", "VALID")):
            full = (1, 8, 9, 5)
            kernel, bias = draw(element, (5, h, w, 3), seed="w"), draw(element, (5,), seed="b")
            rows, columns = (windows(d, k, stride, 1, padding)[0] for d, k in ((8, h), (9, w)))
            x = draw(element, (1, rows, columns, 3))
            product = partial(transposed_convolution, full=full, strides=(stride, stride), padding=padding)
            options = {"padding": padding, "stride_h": stride, "stride_w": stride, **NONE}
            yield from _convolved(op, element, [int32(full), kernel, x, bias], product, options)


@probe("CONV_3D_TRANSPOSE")
def conv_3d_transpose(op: str) -> Iterator[Case]:
    """The filter is [window, out, in]."""
    for element in FLOATS:
        for size, stride, padding in itertools.product((3, 2), (1, 2), ("SAME", "VALID")):
            full = (1, 6, 5, 7, 4)
            kernel, bias = draw(element, (size,) * 3 + (4, 3), seed="w"), draw(element, (4,), seed="b")
            counts = [windows(d, size, stride, 1, padding)[0] for d in full[1:4]]
            x = draw(element, (1, *counts, 3))
            convolution = partial(transposed_convolution, full=full, strides=(stride,) * 3, padding=padding)
            product = partial(_with_filter_order, convolution, (3, 0, 1, 2, 4))
            options = {"padding": padding, **NONE, **{f"stride_{a}": stride for a in "dhw"}}
            options |= {f"dilation_{a}_factor": 1 for a in "dhw"}
            yield from _convolved(op, element, [int32(full), kernel, x, bias], product, options)


def transposed_convolution(x: Array, w: Array, full: Sequence[int], strides: Sequence[int], padding: str) -> Array:
    """Transposed convolution to the shape `full`; `w` is [out, window..., in]."""
    counts = [windows(d, k, s, 1, padding) for d, k, s in zip(full[1:-1], w.shape[1:-1], strides, strict=True)]
    padded = [d + before + after + 8 for d, (_, before, after) in zip(full[1:-1], counts, strict=True)]
    y = np.zeros((full[0], *padded, full[-1]))
    for position in itertools.product(*(range(d) for d in x.shape[1:-1])):
        at: tuple[Any, ...] = (slice(None), *position)
        corner = [p * s for p, s in zip(position, strides, strict=True)]
        area = tuple(slice(c, c + k) for c, k in zip(corner, w.shape[1:-1], strict=True))
        y[(slice(None), *area)] += np.moveaxis(np.tensordot(x[at], w, ((-1,), (-1,))), 1, -1)
    return y[(slice(None), *(slice(b, b + d) for (_, b, _), d in zip(counts, full[1:-1], strict=True)))]


def _window_options(padding: str, stride: int, dilation: int) -> dict[str, Any]:
    strides = {"stride_h": stride, "stride_w": stride}
    return {"padding": padding, **strides, "dilation_h_factor": dilation, "dilation_w_factor": dilation, **NONE}


def _with_filter_order(product: Product, permutation: Sequence[int], x: Array, kernel: Array) -> Array:
    return product(x, kernel.transpose(permutation))


def _dense(keep: bool, x: Array, kernel: Array) -> Array:
    y = x @ kernel.T
    return y if keep else y.reshape(-1, kernel.shape[0])


@probe("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D")
def pools(op: str) -> Iterator[Case]:
    """Averages do not count padding."""
    for element in FLOATS if op != "MAX_POOL_2D" else NUMBERS:
        for (h, w), stride, padding in itertools.product(
            ((2, 2), (3, 3), (1, 4), (5, 5)), (1, 2, 3), ("SAME", "VALID")
        ):
            x = draw(element, (2, 9, 8, 3))
            evaluate = partial(_pooled, op, (h, w), stride, padding)
            options = {"padding": padding, "stride_h": stride, "stride_w": stride, **NONE}
            options |= {"filter_height": h, "filter_width": w}
            yield evaluated(op, {"T": element}, [x], evaluate, options=options)


def _pooled(op: str, window: tuple[int, int], stride: int, padding: str, x: Array) -> list[Array]:
    wide = x.astype(object) if x.dtype.kind in "iu" else x.astype(np.float64)
    fill = -(1 << 70) if x.dtype.kind in "iu" else np.nan
    p = patches(wide, window, (stride,) * 2, (1, 1), padding, fill)
    if op == "MAX_POOL_2D":
        y = np.asarray(np.max(p, (3, 4)) if x.dtype.kind in "iu" else np.nanmax(p, (3, 4)))
    else:
        y = np.nanmean(p, (3, 4)) if op == "AVERAGE_POOL_2D" else np.sqrt(np.nanmean(p * p, (3, 4)))
    return [y.astype(x.dtype)]


@probe("FULLY_CONNECTED")
def fully_connected(op: str) -> Iterator[Case]:
    """Operands of every rank, with and without keep_num_dims."""
    for element in FLOATS:
        for rank, keep in itertools.product(range(1, 9), (False, True)):
            x = draw(element, (*sizes(rank)[:-1], 6))
            kernel, bias = draw(element, (5, 6), seed="w"), draw(element, (5,), seed="b")
            options = {"keep_num_dims": keep, "weights_format": "DEFAULT", **NONE}
            options["asymmetric_quantize_inputs"] = False
            yield from _convolved(op, element, [x, kernel, bias], partial(_dense, keep), options, keep_num_dims=keep)


@probe("BATCH_MATMUL")
def batch_matmul(op: str) -> Iterator[Case]:
    """Batches that are equal, broadcast, or of different rank; each flag; either operand constant."""
    for element in (*FLOATS, *INTEGERS):
        for rank in range(2, 9):
            batch = sizes(rank - 2)
            ones = tuple(1 if i % 2 else d for i, d in enumerate(batch))
            for left, right in (
                (batch, batch),
                (batch, batch[1:]),
                (ones, batch),
                (batch, ()),
                ((), batch),
                (batch, ones),
            ):
                yield from _products(op, element, left, right, "equal" if left == right else "broadcast")


def _products(op: str, element: str, left: tuple[int, ...], right: tuple[int, ...], mode: str) -> Iterator[Case]:
    for adj_x, adj_y in itertools.product((False, True), repeat=2):
        operand = draw if element in FLOATS else draw_small
        x = operand(element, (*left, *((4, 3) if adj_x else (3, 4))), seed="x")
        y = operand(element, (*right, *((5, 4) if adj_y else (4, 5))), seed="y")
        flags = {"adj_x": adj_x, "adj_y": adj_y}
        options = {**flags, "asymmetric_quantize_inputs": False}
        types = {"T": element, "W": element}
        for constants in ((1,), (0,), ()):
            yield evaluated(
                op,
                types,
                [x, y],
                partial(_product, adj_x, adj_y),
                options=options,
                mode=mode,
                extra=flags,
                constants=frozenset(constants),
            )


def _product(adj_x: bool, adj_y: bool, x: Array, y: Array) -> list[Array]:
    wide = np.int64 if x.dtype.kind in "iu" else np.float64
    a, b = (np.swapaxes(v, -1, -2) if flip else v for v, flip in ((x, adj_x), (y, adj_y)))
    return [np.asarray(a.astype(wide) @ b.astype(wide)).astype(x.dtype)]


@probe("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resizes(op: str) -> Iterator[Case]:
    """Larger and smaller sizes, each coordinate transformation; the size constant and computed."""
    for element in NUMBERS:
        for corners, half in ((False, False), (True, False), (False, True)):
            for size in ((8, 10), (7, 9), (7, 3), (2, 9), (4, 5), (1, 1)):
                x = draw(element, (2, 4, 5, 3))
                evaluate = partial(_resized, op, corners, half)
                options = {"align_corners": corners, "half_pixel_centers": half}
                types = {"T": element, "I": "int32"}
                extra = dict(options)
                fixed = {**extra, "constant": "size"}
                yield evaluated(
                    op, types, [x, int32(size)], evaluate, options=options, constants=frozenset({1}), extra=fixed
                )
                yield evaluated(op, types, [x, int32(size)], evaluate, options=options, dynamic=True, extra=extra)


def _resized(op: str, corners: bool, half: bool, x: Array, size: Array) -> list[Array]:
    wide = x.astype(np.float64)
    for axis, count in ((1, int(size[0])), (2, int(size[1]))):
        old = x.shape[axis]
        scale = (old - 1) / (count - 1) if corners and count > 1 else old / count
        at = (np.arange(count) + 0.5) * scale - 0.5 if half else np.arange(count) * scale
        if op == "RESIZE_NEAREST_NEIGHBOR":
            at = np.arange(count) * scale + (0.5 * scale if half else 0)
            nearest = np.floor(at + 0.5 if corners else at).astype(int)
            wide = np.take(wide, np.clip(nearest, 0, old - 1), axis)
            continue
        at = np.clip(at, 0, old - 1)
        low = np.floor(at).astype(int)
        part = (at - low).reshape((-1,) + (1,) * (3 - axis))
        high = np.minimum(low + 1, old - 1)
        wide = np.take(wide, low, axis) * (1 - part) + np.take(wide, high, axis) * part
    return [wide.astype(x.dtype)]


@probe("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth_to_space(op: str) -> Iterator[Case]:
    """Block sizes 2 and 3."""
    for element in (*NUMBERS, "bool"):
        for block in (2, 3):
            deep = draw(element, (2, 2, 3, 2 * block * block))
            x, move = (deep, _to_space) if op == "DEPTH_TO_SPACE" else (_to_space(block, deep)[0], _to_depth)
            yield evaluated(op, {"T": element}, [x], partial(move, block), options={"block_size": block})


def _to_space(block: int, x: Array) -> list[Array]:
    n, h, w, c = x.shape
    blocks = x.reshape(n, h, w, block, block, c // block**2).transpose(0, 1, 3, 2, 4, 5)
    return [np.ascontiguousarray(blocks).reshape(n, h * block, w * block, c // block**2)]


def _to_depth(block: int, x: Array) -> list[Array]:
    n, h, w, c = x.shape
    blocks = x.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    return [np.ascontiguousarray(blocks).reshape(n, h // block, w // block, c * block**2)]


@probe("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def space_to_batch(op: str) -> Iterator[Case]:
    """Blocks along one and two axes, with padding or crops."""
    for element in (*NUMBERS, "bool"):
        for rank in (4, 3, 5):
            spatial = (4, 6)[: min(rank - 2, 2)]
            x = draw(element, (1, *spatial, *(3,) * (rank - 1 - len(spatial))))
            blocks = (2, 3)[: len(spatial)]
            for pad in ((0, 0), (1, 0)):
                total = [d + sum(pad) for d in spatial]
                blocks = tuple(b if t % b == 0 else 1 for b, t in zip(blocks, total, strict=True))
                batches = _to_batch(
                    np.pad(x, [(0, 0), *[pad] * len(spatial), *[(0, 0)] * (rank - 1 - len(spatial))]), blocks
                )
                a, b = (x, batches) if op == "SPACE_TO_BATCH_ND" else (batches, x)
                types = {"T": element, "I": "int32"}
                operands = [a, int32(blocks), int32([pad] * len(spatial))]
                name = "block_shape paddings" if op == "SPACE_TO_BATCH_ND" else "block_shape crops"
                yield Case(op, types, operands, [b], constants=frozenset({1, 2}), extra={"constant": name})
                yield Case(op, types, operands, [b], dynamic=True)


def _to_batch(x: Array, blocks: tuple[int, ...]) -> Array:
    m = len(blocks)
    split = [d for size, b in zip(x.shape[1:], blocks, strict=False) for d in (size // b, b)]
    y = x.reshape(x.shape[0], *split, *x.shape[1 + m :])
    order = [2 + 2 * i for i in range(m)] + [0] + [1 + 2 * i for i in range(m)] + list(range(1 + 2 * m, y.ndim))
    sizes_after = [size // b for size, b in zip(x.shape[1:], blocks, strict=False)]
    return np.ascontiguousarray(y.transpose(order)).reshape(-1, *sizes_after, *x.shape[1 + m :])
