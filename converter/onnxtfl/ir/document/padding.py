"""Pad with its amounts as attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.padding import MODES, InteriorPad, Pad


def _printed(node: Node) -> Statement | None:
    names = {ours: theirs for theirs, ours in MODES.items()}
    mode, padding = names.get(node.attr("mode")), node.operand(1)
    if mode is None or not padding.is_constant:
        return None
    low, high = (tuple(side.tolist()) for side in padding.numpy().T)
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "mode": mode}
    return Statement(Pad.trimmed([node.operand(0), node.optional(2)]), attributes)


@document_form(
    Pad,
    Operand("input"),
    Operand("padding_value", optional=True),
    attributes={"mode": Choice(*MODES, default=next(iter(MODES)))},
    printed=_printed,
)
def _pad(
    b: Builder,
    x: Value,
    value: Value | None,
    edge_padding_low: Sequence[int],
    edge_padding_high: Sequence[int],
    interior_padding: Sequence[int] = (),
    mode: str = "",
) -> Value:
    """The amounts before and after each axis, negative ones crop; `interior_padding` is inserted first."""
    if any(interior_padding):
        x = b(InteriorPad, x, value, interior_padding=tuple(interior_padding))
    return b(Pad, x, np.stack([edge_padding_low, edge_padding_high], 1).astype(np.int64), value, mode=MODES[mode])
