"""GridSample with the document's names of modes."""

from __future__ import annotations

from onnxtfl.ir.attributes import Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.padding import MODES
from onnxtfl.ir.ops.sampling import GridSample

_SAMPLED = {"NEAREST": "nearest", "LINEAR": "linear"}
_PADDED = dict(zip(MODES, ("zeros", "border", "centers", "edges"), strict=True))


def _printed(node: Node) -> Statement | None:
    mode = {ours: theirs for theirs, ours in _SAMPLED.items()}.get(node.attr("mode"))
    ours, corners = node.attr("padding_mode"), node.attr("align_corners")
    ours = {True: "centers", False: "edges"}[corners] if ours == "reflection" else ours
    if mode is None:
        return None
    padding = next(theirs for theirs, name in _PADDED.items() if name == ours)
    return Statement(node.operands, {"mode": mode, "padding_mode": padding, "align_corners": corners})


@document_form(
    GridSample,
    Operand("input"),
    Operand("grid"),
    attributes={"mode": Choice(*_SAMPLED, default="LINEAR"), "padding_mode": Choice(*MODES, default=next(iter(MODES)))},
    printed=_printed,
)
def _grid_sample(
    b: Builder, x: Value, grid: Value, mode: str = "", padding_mode: str = "", align_corners: bool = False
) -> Value:
    """`padding_mode` is one of Pad: zeros, the border, mirrored at the centers of the outer elements (PAD_REFLECT) or
    at their edges (PAD_SYMMETRIC).
    """
    padded = _PADDED[padding_mode]
    if padded == ("centers" if align_corners else "edges"):
        padded = "reflection"
    return b(GridSample, x, grid, mode=_SAMPLED[mode], padding_mode=padded, align_corners=align_corners)
