"""Heads of attention are computed as a batch of products, for the CPU's delegate.

::

    %y = Dot(%x: 1x197x192, %w: 192x192)               %h = Dot(%x: 1x1x197x192, %w: 1x3x192x64)
    %r = Reshape(%y) [1, 197, 3, 64]            ->
    %h = Transpose(%r) [0, 2, 1, 3]

XNNPACK multiplies by constant matrices of a batch as fast as by one of all columns, so the Transpose is saved; a bias
is an Add, which takes its time. Queries, keys and values that are parts of one product are one such batch each.
Microseconds of FULLY_CONNECTED, RESHAPE and TRANSPOSE, and of BATCH_MATMUL and ADD, one thread:

=====================  ====  ====
32 rows, 4 heads of 32   12    12
100 rows, 8 of 32        85    85
256 rows, 8 of 32       213   209
128 rows, 6 of 64       394   390
512 rows, 12 of 64     4372  4117
=====================  ====  ====
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array, ColumnsData, PartData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.types import DType

COLUMNS, ROWS = 32, 32
"""Kernels compute a multiple of so many columns (heads of 16 take 1.7 times as long); with batches, several ROWS."""
MOST = 1 << 22
"""The most elements of a product whose moves are followed."""
_MOST_BATCHES = 3
_MOVES = (ops.Reshape, ops.Transpose, ops.Slice, ops.Split, ops.Gather)


@dataclass(frozen=True)
class Heads:
    """Some columns of a product, as its moves arrange them.

    `sizes`: those of the axes that are not 1. `of_rows`: for each of these, whether it is an axis of rows, else of
    columns. `columns`: which ones, in the shape of their axes.
    """

    sizes: tuple[int, ...]
    of_rows: tuple[bool, ...]
    columns: Array

    @classmethod
    def of(cls, places: Array, count: int) -> Heads | None:
        """The heads in the moved `places` of the elements of [rows, count]; None if an axis mixes rows and columns."""
        sizes = tuple(size for size in places.shape if size != 1)
        rows, columns = np.divmod(places.reshape(sizes).astype(np.int64), count)
        of_rows, of_columns = ([bool(np.diff(x, axis=i).any()) for i in range(x.ndim)] for x in (rows, columns))
        if any(a == b for a, b in zip(of_rows, of_columns, strict=True)):
            return None
        row = rows[tuple(slice(None) if varies else 0 for varies in of_rows)]
        column = columns[tuple(slice(None) if varies else 0 for varies in of_columns)]
        is_whole = column.ndim > 0 and np.array_equal(row.reshape(-1), np.arange(row.size))
        return cls(sizes, tuple(of_rows), column) if is_whole else None

    @property
    def is_turned(self) -> bool:
        """Whether the last axis is that of the rows of each matrix."""
        return self.of_rows[-1]

    @property
    def batch(self) -> list[tuple[int, bool]]:
        """The sizes of the axes of batches, and whether they are axes of rows."""
        return list(zip(self.sizes, self.of_rows, strict=True))[:-2]

    @property
    def has_batches_of_columns(self) -> bool:
        """Whether each batch has columns of its own, so that moving them would take a Transpose."""
        return self.columns.ndim > 1

    @property
    def is_as_fast(self) -> bool:
        """Whether the products of rows and columns in this order take no more time than one product of all."""
        if not self.has_batches_of_columns:
            return not self.of_rows[-1] and all(self.of_rows[:-1])
        rows = self.sizes[-1 if self.is_turned else -2]
        fills_rows = rows >= ROWS or not any(is_row for _, is_row in self.batch)
        is_batch = self.of_rows[-1] != self.of_rows[-2] and len(self.batch) <= _MOST_BATCHES
        return is_batch and fills_rows and self.columns.shape[-1] % COLUMNS == 0


def split_heads(graph: Graph) -> bool:
    """Replace products that are only read as heads; return whether there were any."""
    found = [node for node in graph.nodes if node.op in (ops.DotGeneral, ops.DotGeneralBias) and _has_weights(node)]
    return sum(_split(graph, node) for node in found) > 0


def _has_weights(dot: Node) -> bool:
    """Whether this is a product of known size of rows with a constant matrix of floats."""
    roles, weights, x = ops.DotRoles.of(dot), dot.operand(1), dot.operand(0)
    is_plain = weights.data is not None and weights.rank == 2 and weights.dtype is DType.FLOAT32
    is_of_rows = not roles.lhs_batch and roles.lhs_contract == (x.rank - 1,) and not dot.attr("output_permutation")
    is_known = dot.result.tensor_type.is_static and 1 < math.prod(dot.result.shape) <= MOST
    return (
        is_plain and is_of_rows and is_known and not (weights.is_quantized or x.is_quantized or dot.result.is_quantized)
    )


def _split(graph: Graph, dot: Node) -> bool:
    shape, count = dot.result.shape, dot.result.size(-1)
    if dot.result in graph.output_set() or not any(user.op in _MOVES for user in dot.result.users()):
        return False
    places = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    read = [(value, Heads.of(moved, count)) for value, moved in _moved(graph, dot.result, places)]
    heads = [(value, found) for value, found in read if found is not None and found.is_as_fast]
    is_once = sum(found.columns.size for _, found in heads) <= count
    if len(heads) < len(read) or not is_once or not any(found.has_batches_of_columns for _, found in heads):
        return False
    for value, found in heads:
        b = Builder(graph, value.producer, cause=dot, maker="heads")
        graph.substitute(value, reshape(b, _computed(b, dot, found), value.shape))
    return True


def _moved(graph: Graph, value: Value, places: Array) -> Iterator[tuple[Value, Array]]:
    """Follow the moves of `value`; yield those results that other ops read, with the places of their elements."""
    users = value.users()
    if value in graph.output_set() or not all(_is_move(user, value) for user in users):
        yield value, places
        return
    for user in users:
        known = [places if v is value else None if v is None else v.numpy() for v in user.operands]
        for result, moved in zip(user.results, evaluate_node(user, known), strict=True):
            if result.uses or result in graph.output_set():
                yield from _moved(graph, result, moved)


def _is_move(node: Node, value: Value) -> bool:
    """Whether `node` moves elements of `value` to places that are known."""
    is_known = all(v is None or v.is_constant for v in node.operands[1:])
    return node.op in _MOVES and node.operand(0) is value and is_known and not value.is_constant


def _computed(b: Builder, dot: Node, heads: Heads) -> Value:
    """The elements of `heads`, without unit axes."""
    x, bias, columns = dot.operand(0), dot.optional(2), heads.columns
    if not heads.has_batches_of_columns:
        rows = reshape(b, x, (*heads.sizes[:-1], x.shape[-1]))
        axes = {"lhs_contracting_dimensions": (rows.rank - 1,), "rhs_contracting_dimensions": (0,)}
        part = [] if bias is None else [constant(bias.numpy().reshape(-1)[columns], bias.dtype)]
        return b(dot.op, rows, _weights(dot, columns), *part, **axes)
    batch, size = heads.batch, heads.sizes[-1 if heads.is_turned else -2]
    rows = reshape(b, x, (*(n if is_row else 1 for n, is_row in batch), size, x.shape[-1]))
    weights, spread = _weights(dot, columns), [1 if is_row else n for n, is_row in batch]
    weights = reshape(b, weights, (*spread, *weights.shape[-2:]))
    axis, batching = len(batch), tuple(range(len(batch)))
    product = b(
        ops.DotGeneral,
        rows,
        weights,
        lhs_batching_dimensions=batching,
        rhs_batching_dimensions=batching,
        lhs_contracting_dimensions=(axis + 1,),
        rhs_contracting_dimensions=(axis,),
    )
    if bias is not None:
        added = bias.numpy().reshape(-1)[columns].reshape((*spread, 1, columns.shape[-1]))
        product = b(ops.Add, product, constant(added, bias.dtype))
    return transposed(b, product, (*batching, axis + 1, axis)) if heads.is_turned else product


def _weights(dot: Node, columns: Array) -> Value:
    """The matrices [.., feature, column] of these columns; elements are read lazily."""
    (feature,), weights = ops.DotRoles.of(dot).rhs_contract, dot.operand(1)
    assert weights.data is not None
    matrix, chosen = weights.data.transpose((1, 0)) if feature else weights.data, columns.reshape(-1)
    first = int(chosen[0])
    if np.array_equal(chosen, np.arange(first, first + chosen.size)):
        matrix = matrix if chosen.size == matrix.shape[1] else PartData(matrix, first, first + chosen.size, 1)
    else:
        matrix = ColumnsData(matrix, chosen)
    split = matrix.reshape((matrix.shape[0], *columns.shape))
    return constant(split.transpose((*range(1, columns.ndim), 0, columns.ndim)), weights.dtype)
