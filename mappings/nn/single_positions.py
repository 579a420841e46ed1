"""Pools over windows of a single position take the first parts of blocks, for XNNPACK, which has no such pools.

::

    MaxPool(%x: [n,h,w,c], window 1x1, strides 2, 2)    ->    %r = Reshape(%x)                    [n h/2, 2, w/2, 2c]
                                                              %a = Slice(%r) [:, 0:1, :, 0:c]
                                                              Reshape(%a)                         [n,h/2,w/2,c]

ResNetV2 of Keras and feature pyramids of torchvision have such pools.
"""

from __future__ import annotations

from onnxtfl.build.sizes import slice_axes
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static, known_sizes
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.pooling import pool_window
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.registry import decompose_late


def _takes_single_positions(node: Node) -> bool:
    """Whether a pool over the two middle axes of four takes the first position of each whole block."""
    x, attributes = node.operand(0), attributes_of(node)
    if tuple(attributes["dims"]) != (1, 2) or x.tensor_type.rank != 4 or not is_static(x.shape[1:]):
        return False
    window, sizes = pool_window(attributes), known_sizes(x.shape[1:3])
    is_single = set(window.shape) == {1} and not any(window.explicit(sizes).explicit_padding)
    return is_single and all(size and size % step == 0 for size, step in zip(sizes, window.strides, strict=True))


@decompose_late(ops.MaxPool, "xnnpack", when=_takes_single_positions)
@decompose_late(ops.AveragePool, "xnnpack", when=_takes_single_positions)
def _first_of_blocks(b: Builder, node: Node) -> Value:
    x = node.operand(0)
    (images, height, width, features), (down, along) = x.shape, node.attr("strides")
    blocks = reshape(b, x, [images * (height // down), down, width // along, along * features])
    return reshape(b, slice_axes(b, blocks, {1: slice(0, 1), 3: slice(0, features)}), node.result.shape)
