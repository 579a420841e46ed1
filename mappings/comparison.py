"""Comparisons, and the choice between two tensors."""

from __future__ import annotations

from onnxtfl.rules import *

# --- unsigned 64-bit numbers read as signed ---------------------------------------------------------------------------


def _compare(b: Builder, node: Node) -> Value | None:
    return (same_bits if node.attr("comparison_direction") in ("EQ", "NE") else same_order)(b, node)


decompose(ops.Select, "tfl", "elements")(same_bits)
decompose(ops.Compare, "tfl")(_compare)

_COMPARISONS = (
    ("EQ", "Equal", (7, 11, 13, 19), "EQUAL"),
    ("GT", "Greater", (7, 9, 13), "GREATER"),
    ("LT", "Less", (7, 9, 13), "LESS"),
    ("GE", "GreaterOrEqual", (12, 16), "GREATER_EQUAL"),
    ("LE", "LessOrEqual", (12, 16), "LESS_EQUAL"),
)
for _direction, _onnx, _since, _tfl in _COMPARISONS:
    row(ops.Compare, onnx=_onnx, since=_since, tfl=_tfl, fixed={"comparison_direction": _direction})
for _old in ("Equal", "Greater", "Less"):
    upgrade(_old, since=(1,))(align_by_axis)
row(ops.Compare, tfl="NOT_EQUAL", fixed={"comparison_direction": "NE"})
row(ops.Select, onnx="Where", since=(9, 16), tfl="SELECT_V2")


@lift_tfl("SELECT")
def _select(b: Builder, node: Node) -> Value:
    """A condition of rank 1 chooses along the first axis."""
    condition, on_true, on_false = (node.operand(i) for i in range(3))
    if condition.tensor_type.rank == 1 and (on_true.tensor_type.rank or 0) > 1:
        condition = unsqueezed(b, condition, range(1, on_true.rank))
    return b(ops.Select, condition, on_true, on_false)


@decompose(ops.Compare, "onnx")
def _not_equal(b: Builder, node: Node) -> Value | None:
    if node.attr("comparison_direction") != "NE":
        return None
    return Term(b, node.operand(0)).equals(Term(b, node.operand(1))).apply(ops.Not).value


@decompose(ops.Select, "onnx")
def _select_of_uint64(b: Builder, node: Node) -> Value | None:
    """ONNX Runtime chooses between signed numbers."""
    if node.result.dtype is not DType.UINT64:
        return None
    on_true, on_false = (Term(b, node.operand(i)).to(DType.INT64) for i in (1, 2))
    return Term(b, node.operand(0)).choose(on_true, on_false).to(DType.UINT64).value
