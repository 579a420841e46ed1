"""Kernels of convolutions that are stored as float16, as constants while other passes rewrite the convolutions.

::

    %w = Convert(%half) float32
    %y = Conv(%x, %w)              ->     %y = Conv(%x, %constant)      the elements of %half, read lazily

Afterwards kernels whose elements are those of float16 are stored so again: moved elements, parts and zeros are, sums
mostly are not. Runtimes widen such constants once, before the first run.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import ArrayData, CastData, PartData, ReshapedData, TensorData, TransposedData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.fold import SMALL

_HALF, _WIDE = DType.FLOAT16, DType.FLOAT32
_MOVES = (TransposedData, ReshapedData, PartData)


def widen_kernels(graph: Graph) -> bool:
    """Replace kernels that are converted from float16 constants by float32 ones."""
    changed = False
    for node in _convolutions(graph):
        kernel, convert = node.operand(1), made_by(node.operand(1), ops.Convert)
        half = None if convert is None else convert.operand(0)
        if half is None or half.data is None or half.dtype is not _HALF or kernel.dtype is not _WIDE:
            continue
        wide = constant(half.data.cast(_WIDE))
        wide.add_origins(half.origins)
        node.set_operand(1, wide)
        changed = True
    return changed


def narrow_kernels(graph: Graph) -> bool:
    """Store large constant kernels as float16 if their elements are, in graphs of which a kernel was widened."""
    readers: dict[Value, list[Node]] = {}
    for node in _convolutions(graph):
        kernel = node.operand(1)
        if kernel.data is not None and kernel.dtype is _WIDE and kernel.data.nbytes > SMALL:
            readers.setdefault(kernel, []).append(node)
    if not any(is_widened(value.data) for value in readers if value.data is not None):
        return False
    for value, nodes in readers.items():
        if value.data is None or (half := half_of(value.data)) is None:
            continue
        stored = constant(half)
        stored.add_origins(value.origins)
        wide = Builder(graph, nodes[0], maker="half kernels")(ops.Convert, stored, dtype=_WIDE)
        for node in nodes:
            node.set_operand(1, wide)
    return True


def _convolutions(graph: Graph) -> Iterator[Node]:
    return (node for node in graph.nodes if node.op.multiplies == "windows")


def is_widened(data: TensorData) -> bool:
    """Whether these are moved elements, or a part, of a float16 constant."""
    while isinstance(data, _MOVES):
        data = data.base
    return isinstance(data, CastData) and data.base.dtype is _HALF and data.dtype is _WIDE


def half_of(data: TensorData) -> TensorData | None:
    """The same elements as float16; None if some are none, or a file has them as float32."""
    if isinstance(data, CastData):
        return data.base if is_widened(data) else None
    if isinstance(data, ArrayData):
        return _exact_half(data)
    base = half_of(data.base) if isinstance(data, _MOVES) else None
    if base is None:
        return None
    if isinstance(data, TransposedData):
        return base.transpose(data.permutation)
    if isinstance(data, PartData):
        return PartData(base, data.start, data.start + data.shape[data.axis], data.axis)
    return base.reshape(data.shape)


def _exact_half(data: ArrayData) -> TensorData | None:
    elements = data.numpy()
    with np.errstate(over="ignore"):
        half = elements.astype(np.float16)
    return ArrayData(half, _HALF) if np.array_equal(half.astype(elements.dtype), elements, equal_nan=True) else None
