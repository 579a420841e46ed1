"""Deformable convolutions.

==============  =============================================================================================
ONNX            DeformConv 19 22
==============  =============================================================================================
"""

from __future__ import annotations

import numpy as np

from onnxtfl.build.convolutions import kernel_sizes
from onnxtfl.build.sizes import slice_axes
from onnxtfl.build.windows import onnx_window
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_size, known_sizes, product
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.ops.sampling import FeatureMap, along_channels
from onnxtfl.ir.reshape import concatenated, reshape, transposed
from onnxtfl.rewriting.registry import lift_onnx


@lift_onnx("DeformConv", since=(19, 22))
def _deform_conv(b: Builder, node: Node) -> Value:
    """Return Conv of bilinear samples at the window's taps, moved by `offset` and multiplied by `mask`.

    Samples outside of x are 0. Source: ONNX DeformConv-19.
    """
    x, kernel, offset, bias, mask = (node.optional(i) for i in range(5))
    assert x is not None and kernel is not None and offset is not None
    sizes, groups = kernel_sizes(node, kernel), int(node.attr("offset_group", 1))
    spatial = known_sizes(offset.shape[2:])
    if len(sizes) != 2 or len(spatial) != 2 or not is_static((x.shape[1], *kernel.shape)):
        raise UnsupportedError("a deformable convolution needs two spatial axes of known size", code="E-SHAPE-001")
    window = onnx_window(node, sizes)
    taps, count = list(window.taps()), spatial[0] * spatial[1]
    check_elements(len(taps) * max(count, *spatial), "the positions of the samples")
    base = [
        [(np.arange(n) * s - p + t[i] * d) for t in taps]
        for i, (n, s, p, d) in enumerate(zip(spatial, window.strides, window.before, window.dilations, strict=True))
    ]
    rows = np.stack([np.repeat(r, spatial[1]) for r in base[0]]).reshape(1, -1)
    columns = np.stack([np.tile(c, spatial[0]) for c in base[1]]).reshape(1, -1)
    lines = [line.astype(x.dtype.numpy) for line in (rows, columns)]
    moved = reshape(b, offset, (x.shape[0], groups, len(taps), 2, count))
    depth, parts = x.shape[1] // groups, []
    for g in range(groups):
        part = FeatureMap(Term(b, slice_axes(b, x, {1: slice(g * depth, (g + 1) * depth)})))
        places = [_moved(b, moved, g, i, constant(line)) for i, line in enumerate(lines)]
        sampled = part.sampled(places, "linear")
        if mask is not None:
            own = slice_axes(b, mask, {1: slice(g * len(taps), (g + 1) * len(taps))})
            sampled = sampled * along_channels(Term(b, reshape(b, own, (x.shape[0], len(taps) * count))))
        parts.append(reshape(b, sampled.value, (x.shape[0], len(taps), count, depth)))
    joined = concatenated(b, parts, 3)
    result = _contracted(b, joined, kernel, int(node.attr("group", 1)))
    image = transposed(b, reshape(b, result, (x.shape[0], *spatial, kernel.shape[0])), (0, 3, 1, 2))
    return image if bias is None else b(ops.Add, image, reshape(b, bias, (*bias.shape, 1, 1)))


def _moved(b: Builder, offsets: Value, group: int, axis: int, base: Value) -> Term:
    """Return the sample coordinates along one axis: [n, taps * positions]."""
    own = b(ops.Gather, b(ops.Gather, offsets, np.asarray(group), axis=1), np.asarray(axis), axis=2)
    flat = reshape(b, own, (offsets.shape[0], product(offsets.shape[2:3]) * product(offsets.shape[4:])))
    return Term(b, b(ops.Add, flat, base))


def _contracted(b: Builder, samples: Value, kernel: Value, groups: int) -> Value:
    """Return samples [n, taps, p, c] times kernel [o, c / groups, taps...] as [n, p, o]."""
    out, depth = (known_size(d) for d in kernel.shape[:2])
    flat = reshape(b, kernel, (out, depth, product(kernel.shape[2:])))
    parts = []
    for g in range(groups):
        own = slice_axes(b, samples, {3: slice(g * depth, (g + 1) * depth)})
        rows = slice_axes(b, flat, {0: slice(g * (out // groups), (g + 1) * (out // groups))})
        parts.append(Term(b, own).dot(rows, (1, 3), (2, 1)).value)
    return concatenated(b, parts, 2)
