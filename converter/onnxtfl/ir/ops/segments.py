"""Reductions over rows with the same segment id: SegmentReduce."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import INTEGERS, NUMERIC, Op, Operand
from onnxtfl.ir.ops.scattering import written
from onnxtfl.ir.shapes import check_agree, known_dims


class SegmentReduce(Op):
    """result[s] = the `kind` (sum, prod, max, min) of all input[i...] with segment_ids[i...] == s, for s < `count`.

    Ids under 0 or from `count` on are ignored; an empty segment is 0, 1, the lowest or the highest value.
    Source: TFLite UNSORTED_SEGMENT_*.
    """

    operands = (Operand("input", NUMERIC), Operand("segment_ids", INTEGERS), Operand("count", INTEGERS))
    attributes = {"kind": Choice("sum", "prod", "max", "min", default="sum")}
    core = True

    @staticmethod
    def shape(x: Value, segment_ids: Value, count: Value) -> Dims:
        known = known_dims(count)
        if segment_ids.rank > x.rank:
            raise ValueError("more axes of ids than of elements")
        if known is not None and len(known) != 1:
            raise ValueError(f"{len(known)} numbers of segments")
        check_agree(segment_ids.shape, x.shape[: segment_ids.rank], "the shape of the ids")
        return (known[0] if known else fresh_symbol(), *x.shape[segment_ids.rank :])

    @staticmethod
    def compute(x: Array, segment_ids: Array, count: Array, *, kind: str) -> Array:
        places, n = segment_ids.reshape(-1).astype(np.int64), int(count.reshape(()))
        rows = x.reshape(len(places), *x.shape[segment_ids.ndim :])
        kept = (places >= 0) & (places < n)
        kind = {"sum": "add", "prod": "mul"}.get(kind, kind)
        blank = np.full((n, *rows.shape[1:]), _empty(kind, x.dtype), x.dtype)
        return written(blank, (places[kept],), rows[kept], kind)


def _empty(kind: str, dtype: np.dtype[Any]) -> Any:
    """The result for an empty segment."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype if dtype.kind == "f" else np.float32)
    return limits.min if kind == "max" else limits.max
