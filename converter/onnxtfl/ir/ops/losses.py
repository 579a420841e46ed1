"""Losses: BCELoss."""

from __future__ import annotations

from onnxtfl.ir.formula import Formula, Term, by_formula
from onnxtfl.ir.op import FLOATS, Operand


@by_formula(
    Formula, operands=(Operand("input", FLOATS), Operand("target", FLOATS), Operand("weight", FLOATS, optional=True))
)
def BCELoss(x: Term, target: Term, weight: Term | None, reduction: str = "mean") -> Term:
    """-(target * log(input) + (1 - target) * log(1 - input)) * weight, and its `reduction` (none, sum, mean).

    Logarithms are clamped to -100. Source: neutral-ops 3.16; torch.nn.BCELoss.
    """
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"unknown reduction {reduction!r}")
    yes, no = (y.log().max(-100) for y in (x, 1 - x))
    loss = -(target * yes + (1 - target) * no)
    loss = loss if weight is None else loss * weight
    return loss if reduction == "none" else loss.reduce(reduction, keepdims=False)
