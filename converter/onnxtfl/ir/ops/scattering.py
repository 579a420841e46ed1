"""Scatter ops: ScatterND ScatterElements."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Axis, Choice, Flag
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.intervals import ZERO, Facts, FactsOf
from onnxtfl.ir.op import INDICES, INTEGERS, Op, Operand, SharedAxes
from onnxtfl.ir.shapes import check_agree, check_positions, dims_from, normalize_axis
from onnxtfl.ir.types import rank_of

_KINDS: dict[str, Any] = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def written(x: Array, place: tuple[Array, ...], updates: Array, kind: str) -> Array:
    if kind == "none":
        result = x.copy()
        result[place] = updates
        return result
    if x.dtype == bool:
        kind = {"add": "max", "mul": "min"}.get(kind, kind)
    small = x.dtype.kind not in "iub" and x.dtype.itemsize < 4
    result = x.astype(np.float32) if small else x.copy()
    _KINDS[kind].at(result, place, updates.astype(result.dtype))
    return result.astype(x.dtype)


class _Scatter(Op, register=False):
    """The base of ScatterND and ScatterElements."""

    core = True
    carries = slice(0, 3, 2)
    integers = "bits"

    @classmethod
    def facts(cls, node: Node, index: int, of: FactsOf) -> Facts | None:
        """The union of operand and updates; None if they are added or multiplied."""
        if node.attr("kind") in ("add", "mul"):
            return None
        return (ZERO if node.operands[0] is None else of(0)).or_else(of(2))


class ScatterND(_Scatter):
    """input with input[indices[i...]] combined with updates[i...]; the last axis of `indices` indexes the first axes.

    Without `input`, scatter to zeros of `shape`.

    `kind`: how an update is combined with the element ("none": it replaces it; of several updates, the last one, as in
    ONNX Runtime, where ONNX leaves it open). `unique_indices`: no position is written twice, as in XLA.
    Indices are in [0, n). Source: ONNX ScatterND, TFLite SCATTER_ND (add onto zeros); neutral-ops 3.108,
    whose form has XLA's dimension numbers and further computations.
    """

    operands = (
        Operand("input", optional=True, like="updates"),
        Operand("indices", INTEGERS),
        Operand("updates"),
        Operand("shape", INDICES, optional=True),
    )
    results = (Operand("output", like="updates"),)
    attributes = {"kind": Choice(*_KINDS, default="none"), "unique_indices": Flag(False)}
    indexes = "axes"

    @staticmethod
    def shape(x: Value | None, indices: Value, updates: Value, shape: Value | None) -> Dims | None:
        full = x.tensor_type.shape if x is not None else None if shape is None else dims_from(shape)
        places = indices.tensor_type.shape
        if places == ():
            raise ValueError("indices of rank 0")
        if full is None or places is None or not isinstance(places[-1], int):
            return full
        rank, depth = len(full), places[-1]
        if depth > rank or rank_of(updates.type) not in (None, len(places) - 1 + rank - depth):
            raise ValueError(f"indices of shape {places} for rank {rank} and these updates")
        if updates.tensor_type.shape is not None:
            check_agree(updates.shape, (*places[:-1], *full[depth:]), "the shape of the updates")
        check_positions(indices, full[:depth])
        return full

    @staticmethod
    def compute(
        x: Array | None, indices: Array, updates: Array, shape: Array | None, *, kind: str, unique_indices: bool
    ) -> Array:
        del unique_indices
        if x is None:
            assert shape is not None
            x = np.zeros([int(d) for d in shape], updates.dtype)
        return written(x, tuple(np.moveaxis(indices.astype(np.int64), -1, 0)), updates, kind)


class ScatterElements(_Scatter):
    """input with input[..., indices[..., i, ...], ...] combined with updates[..., i, ...], the index at `axis`.

    `kind` and `unique_indices` as for ScatterND. Indices are in [0, n). Source: ONNX ScatterElements.
    """

    operands = (Operand("input"), Operand("indices", INTEGERS), Operand("updates", like="input"))
    attributes = {"axis": Axis(0), "kind": Choice(*_KINDS, default="none"), "unique_indices": Flag(False)}
    indexes = "axis"
    shared_axes = SharedAxes(None, ("axis",))

    @staticmethod
    def shape(x: Value, indices: Value, updates: Value, *, axis: int) -> Dims:
        ranks = {rank_of(v.type) for v in (x, indices, updates)} - {None}
        if len(ranks) > 1:
            raise ValueError("operands differ in rank")
        for rank in ranks:
            normalize_axis(axis, rank or 0)
        if indices.tensor_type.shape is not None and updates.tensor_type.shape is not None:
            check_agree(updates.shape, indices.shape, "the shape of the updates")
        check_positions(indices, [x.shape[axis]])
        return x.shape

    @staticmethod
    def compute(x: Array, indices: Array, updates: Array, *, axis: int, kind: str, unique_indices: bool) -> Array:
        del unique_indices
        place: list[Array] = list(np.indices(indices.shape, sparse=True))
        place[normalize_axis(axis, x.ndim)] = indices.astype(np.int64)
        return written(x, tuple(place), updates, kind)
