"""Reductions, arg max, cumulative sums, softmax, top-k, segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from tools.probe.case import FLOATS, NUMBERS, Array, Case, Evaluate, draw, draw_small, evaluated, int32, sizes
from tools.probe.registry import probe

RANKS = (1, 2, 3, 4, 5, 6, 7, 8)
_REDUCE: dict[str, Callable[..., Any]] = {
    "SUM": np.sum,
    "MEAN": np.mean,
    "REDUCE_PROD": np.prod,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
    "REDUCE_ANY": np.any,
    "REDUCE_ALL": np.all,
}


_OF_NOTHING = {"MEAN": 0, "REDUCE_MAX": -np.inf, "REDUCE_MIN": np.inf}
"""ONNX Runtime's result over axes of size 0, where it is not NumPy's."""


def _axes(rank: int) -> list[tuple[int, ...]]:
    """One axis, several, all; negative ones too."""
    every = tuple(range(rank))
    inner = [every[1:-1], every[1:2], every[-2:-1]] if rank > 2 else []
    return list(dict.fromkeys([(rank - 1,), (0,), (-1,), every, every[::2], every[1:], every[-2:], *inner]))


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iub" else x


@probe(*_REDUCE)
def reduce(op: str) -> Iterator[Case]:
    """Axes constant and computed, kept and dropped."""
    elements = ("bool",) if op in ("REDUCE_ANY", "REDUCE_ALL") else NUMBERS
    for element in elements:
        for rank in RANKS:
            for axes in _axes(rank):
                x = _operand(op, element, rank, axes)
                for keep in (False, True):
                    evaluate = partial(_reduced, op, axes, keep)
                    yield from _constant_or_computed(op, {"T": element}, x, int32(axes), evaluate, {"keep_dims": keep})


def _operand(op: str, element: str, rank: int, axes: tuple[int, ...]) -> Array:
    if op == "REDUCE_PROD" and element not in FLOATS:
        return np.asarray(
            draw_small(element, sizes(rank), low=-1, high=1) * 2 - (0 if element[0] == "u" else 1)
        ).astype(element)
    if element in FLOATS and op == "REDUCE_PROD":
        return draw(element, sizes(rank), low=0.8, high=1.2)
    if op in ("SUM", "MEAN") and element not in FLOATS:
        return (
            draw_small(element, sizes(rank), low=-3, high=4)
            if element in ("int8", "uint8")
            else draw(element, sizes(rank)) // 128
        )
    return draw(element, sizes(rank))


def _reduced(op: str, axes: tuple[int, ...], keep: bool, x: Array, _: Array) -> list[Array]:
    axis = tuple({a % x.ndim for a in axes})
    if not x.size and op in _OF_NOTHING and x.dtype.kind == "f":
        start = np.full(x.shape, _OF_NOTHING[op], x.dtype).max(axis, keepdims=keep, initial=_OF_NOTHING[op])
        return [np.asarray(start)]
    if op == "MEAN" and x.dtype.kind in "iu":  # quotients of integers are truncated
        total, count = np.sum(x.astype(object), axis=axis, keepdims=keep), np.prod([x.shape[a] for a in axis])
        divide = np.vectorize(lambda t: abs(t) // int(count) * (1 if t >= 0 else -1), otypes=[object])
        return [np.asarray(divide(total)).astype(x.dtype)]
    return [np.asarray(_REDUCE[op](_wide(x), axis=axis, keepdims=keep)).astype(x.dtype)]


def _constant_or_computed(
    op: str, types: dict[str, str], x: Array, axes: Array, evaluate: Evaluate, options: dict[str, Any]
) -> Iterator[Case]:
    types, fixed = {**types, "I": axes.dtype.name}, {"constant": _name(op)}
    yield evaluated(op, types, [x, axes], evaluate, options=options, constants=frozenset({1}), extra=fixed)
    yield evaluated(op, types, [x, axes], evaluate, options=options, dynamic=True)


def _name(op: str) -> str:
    return {"ARG_MAX": "dim", "ARG_MIN": "dim", "CUMSUM": "axis"}.get(op, "axes")


@probe("ARG_MAX", "ARG_MIN")
def arg_max(op: str) -> Iterator[Case]:
    """The first of equal elements; both result types."""
    find = np.argmax if op == "ARG_MAX" else np.argmin
    yield from _extremes_of_one_sign(op, find)
    for element in (*NUMBERS, "bool"):
        for result in ("int32", "int64"):
            for rank in RANKS:
                x = draw(element, sizes(rank)) if element in FLOATS else draw_small(element, sizes(rank), high=1)
                for axis in sorted({0, rank - 1, -1, rank // 2}):
                    evaluate = partial(_found, find, axis, result)
                    for index in ("int32", "int64"):
                        types = {"T": element, "U": result}
                        options = {"output_type": result.upper()}
                        yield from _constant_or_computed(op, types, x, np.asarray(axis, index), evaluate, options)


def _extremes_of_one_sign(op: str, find: Callable[..., Any]) -> Iterator[Case]:
    """Elements that are all below zero, or all above, along a last axis of 3 to 8 elements."""
    options, types = {"output_type": "INT32"}, {"T": "float32", "U": "int32"}
    for rank in (2, 3, 4):
        for size in (3, 4, 5, 8):
            x = draw("float32", (*sizes(rank)[:-1], size), low=1)
            evaluate = partial(_found, find, rank - 1, "int32")
            for signed in (x, -x):
                axis = np.asarray(rank - 1, np.int32)
                yield from _constant_or_computed(op, types, signed, axis, evaluate, options)


def _found(find: Callable[..., Any], axis: int, result: str, x: Array, _: Array) -> list[Array]:
    return [np.asarray(find(_wide(x), axis=axis)).astype(result)]


@probe("CUMSUM")
def cumsum(op: str) -> Iterator[Case]:
    """Every axis, exclusive and reversed."""
    for element in NUMBERS:
        for rank in RANKS:
            x = draw_small(element, sizes(rank))
            for axis in sorted({0, rank - 1, -1, rank // 2}):
                for exclusive in (False, True):
                    for reverse in (False, True):
                        evaluate = partial(_cumulated, axis, exclusive, reverse)
                        options = {"exclusive": exclusive, "reverse": reverse}
                        yield from _constant_or_computed(op, {"T": element}, x, int32(axis), evaluate, options)


def _cumulated(axis: int, exclusive: bool, reverse: bool, x: Array, _: Array) -> list[Array]:
    values = np.flip(x, axis) if reverse else x
    total = np.cumsum(_wide(values), axis=axis).astype(x.dtype)
    total = (total - values) if exclusive else total
    return [np.ascontiguousarray(np.flip(total, axis) if reverse else total)]


@probe("SOFTMAX")
def softmax(op: str) -> Iterator[Case]:
    """Along the last axis."""
    for element in FLOATS:
        for rank in RANKS:
            for beta in (1.0, 0.5):
                x = draw(element, sizes(rank))
                yield evaluated(op, {"T": element}, [x], partial(_softmax, beta), options={"beta": beta})


def _softmax(beta: float, x: Array) -> list[Array]:
    wide = _wide(x)
    e = np.exp(beta * (wide - wide.max(axis=-1, keepdims=True, initial=-np.inf)))
    return [(e / np.sum(e, axis=-1, keepdims=True)).astype(x.dtype)]


@probe("LOG_SOFTMAX")
def log_softmax(op: str) -> Iterator[Case]:
    """Along the last axis."""
    for element in FLOATS:
        for rank in RANKS:
            x = draw(element, sizes(rank))
            yield evaluated(op, {"T": element}, [x], _log_softmax)


def _log_softmax(x: Array) -> list[Array]:
    wide = _wide(x)
    wide = wide - wide.max(axis=-1, keepdims=True, initial=-np.inf)
    return [(wide - np.log(np.sum(np.exp(wide), axis=-1, keepdims=True))).astype(x.dtype)]


@probe("L2_NORMALIZATION")
def l2_normalization(op: str) -> Iterator[Case]:
    """Along the last axis."""
    for element in FLOATS:
        for rank in RANKS:
            x = draw(element, sizes(rank), low=0.5)
            yield evaluated(op, {"T": element}, [x], _normalized, options={"fused_activation_function": "NONE"})


def _normalized(x: Array) -> list[Array]:
    wide = _wide(x)
    return [(wide / np.sqrt(np.sum(wide * wide, axis=-1, keepdims=True))).astype(x.dtype)]


@probe("LOCAL_RESPONSE_NORMALIZATION")
def lrn(op: str) -> Iterator[Case]:
    """Over windows of the last axis."""
    options = {"radius": 2, "bias": 1.5, "alpha": 0.3, "beta": 0.75}
    for element in FLOATS:
        for rank in (4, 1, 2, 3, 5):
            x = _wide(draw(element, (*sizes(rank)[:-1], 7)))
            squares = np.pad(x * x, [(0, 0)] * (rank - 1) + [(2, 2)])
            total = sum(squares[..., i : i + 7] for i in range(5))
            y = x / (1.5 + 0.3 * total) ** 0.75
            yield Case(op, {"T": element}, [x.astype(draw(element, ()).dtype)], [y], options)


@probe("TOPK_V2")
def topk(op: str) -> Iterator[Case]:
    """Along the last axis; no equal elements."""
    for element in NUMBERS:
        for rank in RANKS:
            shape = (*sizes(rank)[:-1], 5)
            x = draw(element, shape)
            order = _descending(x)
            for k in (1, 3, 5):
                indices = order[..., :k].astype(np.int32)
                values = np.take_along_axis(x, order[..., :k], -1)
                types = {"T": element, "I": "int32", "U": "int32"}
                yield Case(
                    op, types, [x, int32(k)], [values, indices], constants=frozenset({1}), extra={"constant": "k"}
                )
                yield Case(op, types, [x, int32(k)], [values, indices], dynamic=True)


def _descending(x: Array) -> Array:
    order = np.argsort(x.astype(object) if x.dtype.kind in "iu" else x.astype(np.float64), axis=-1, kind="stable")
    return np.ascontiguousarray(np.flip(order, -1))


@probe("WHERE")
def where(op: str) -> Iterator[Case]:
    """The indices of the nonzero elements."""
    for element in (*NUMBERS, "bool"):
        for rank in RANKS:
            x = draw(element, sizes(rank)) if element == "bool" else draw_small(element, sizes(rank), low=-1, high=1)
            yield Case(op, {"T": element, "U": "int64"}, [x], [np.argwhere(x).astype(np.int64)], dynamic=True)


@probe("UNIQUE")
def unique(op: str) -> Iterator[Case]:
    """In the order of first appearance."""
    for element in NUMBERS:
        for index in ("int32", "int64"):
            x = draw_small(element, (9,))
            values, first, inverse = np.unique(x, return_index=True, return_inverse=True)
            order = np.argsort(first)
            positions = np.argsort(order)[inverse].astype(index)
            types = {"T": element, "U": index}
            yield Case(op, types, [x], [values[order], positions], {"idx_out_type": index.upper()}, dynamic=True)


@probe("SEGMENT_SUM")
def segment_sum(op: str) -> Iterator[Case]:
    """Sorted segments."""
    for element in NUMBERS:
        for rank in RANKS:
            x = draw_small(element, (4, *sizes(rank)[1:]))
            y = np.stack([x[:2].sum(0), x[2:].sum(0)]).astype(x.dtype)
            yield Case(op, {"T": element, "I": "int32"}, [x, int32([0, 0, 1, 1])], [y], dynamic=True)


@probe("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_PROD", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN")
def unsorted_segments(op: str) -> Iterator[Case]:
    """Segments of two rows each."""
    join = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum}[op.rpartition("_")[2]]
    for element in NUMBERS:
        for rank in RANKS:
            x = draw_small(element, (4, *sizes(rank)[1:]), low=-3, high=3)
            y = np.stack([join(x[1], x[3]), join(x[0], x[2])])
            types = {"T": element, "I": "int32", "J": "int32"}
            yield Case(op, types, [x, int32([1, 0, 1, 0]), int32(2)], [y], dynamic=True)
