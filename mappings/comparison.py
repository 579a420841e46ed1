"""Comparisons, and the choice between two tensors."""

from __future__ import annotations

from onnxtfl.rules import *

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
row(ops.Select, onnx="Where", since=(9, 16))
row(ops.Select, tfl="SELECT_V2", lifts=False)


@lift_tfl("SELECT", "SELECT_V2")
def _select(b: Builder, node: Node) -> Value:
    """A condition of rank 1 chooses along the first axis in SELECT.

    Where nothing has more than one element, the result has the rank that the file declares (LiteRT kernels/select.cc).
    """
    condition, on_true, on_false = operands = [node.operand(i) for i in range(3)]
    if node.op.name == "tfl.SELECT" and condition.tensor_type.rank == 1 and (on_true.tensor_type.rank or 0) > 1:
        condition = unsqueezed(b, condition, range(1, on_true.rank))
    chosen = b(ops.Select, condition, on_true, on_false)
    single = all(v.tensor_type.is_static and product(v.shape) == 1 for v in (*operands, node.result))
    return reshape(b, chosen, node.result.shape) if single else chosen


@formula(ops.Compare, "onnx")
def _not_equal(lhs: Term, rhs: Term, *, comparison_direction: str) -> Term | None:
    return lhs.equals(rhs).apply(ops.Not) if comparison_direction == "NE" else None


@formula(ops.Select, "onnx")
def _select_of_uint64(condition: Term, on_true: Term, on_false: Term) -> Term | None:
    """ONNX Runtime has a kernel for signed integers."""
    if on_true.dtype is not DType.UINT64:
        return None
    return condition.choose(on_true.to(DType.INT64), on_false.to(DType.INT64)).to(DType.UINT64)


# --- on quantized operands --------------------------------------------------------------------------------------------

_CHOICE = QLinearRow("Where", 16, (0, Quantized(1, 2, 3), Quantized(4, 5, 6)), result=(7, 8))
qlinear("QLinearWhere", (1,), _CHOICE, MICROSOFT)
qoperator("QLinearWhere", _CHOICE, MICROSOFT)
