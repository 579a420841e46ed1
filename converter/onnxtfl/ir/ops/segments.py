"""Reductions over rows with the same segment id: SegmentReduce."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import fresh
from onnxtfl.ir.graph import Node
from onnxtfl.ir.op import INTEGERS, Op, Operand
from onnxtfl.ir.ops.scattering import written
from onnxtfl.ir.shapes import known_dims, same_type
from onnxtfl.ir.types import Type


class SegmentReduce(Op):
    """result[s] = the `kind` (sum, prod, max, min) of all input[i...] with segment_ids[i...] == s, for s < `count`.

    Ids under 0 or from `count` on are left out; a segment without numbers is 0, 1, the lowest or the highest number.
    Source: TFLite UNSORTED_SEGMENT_*.
    """

    operands = (Operand("input"), Operand("segment_ids", INTEGERS), Operand("count", INTEGERS))
    defaults = {"kind": "sum"}
    core = True

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        x, ids = node.operand(0).tensor_type, node.operand(1).tensor_type
        known = known_dims(node.operand(2))
        if x.shape is None or ids.shape is None:
            return [same_type(x, None)]
        if len(ids.shape) > len(x.shape):
            raise ValueError("more axes of ids than of numbers")
        return [same_type(x, (known[0] if known else fresh(), *x.shape[len(ids.shape) :]))]

    @classmethod
    def evaluate(cls, attributes: Mapping[str, Any], *operands: Array | None) -> Array:
        x, ids, count = operands
        assert x is not None and ids is not None and count is not None
        places, n = ids.reshape(-1).astype(np.int64), int(count.reshape(()))
        rows = x.reshape(len(places), *x.shape[ids.ndim :])
        kept = (places >= 0) & (places < n)
        kind = {"sum": "add", "prod": "mul"}.get(attributes["kind"], attributes["kind"])
        blank = np.full((n, *rows.shape[1:]), _empty(kind, x.dtype), x.dtype)
        return written(blank, (places[kept],), rows[kept], kind)


def _empty(kind: str, dtype: np.dtype[Any]) -> Any:
    """What a segment without numbers is."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    limits: Any = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype if dtype.kind == "f" else np.float32)
    return limits.min if kind == "max" else limits.max
