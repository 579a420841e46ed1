"""The ops, operands and options that a target does not accept, from its table."""

from __future__ import annotations

from onnxtfl.rewriting.registry import Form
from onnxtfl.rewriting.target import Refusal
from onnxtfl.schemas.target_tables import TargetTable
from onnxtfl.targets.table import Narrowed, entry, narrowed


def refusal_by(table: TargetTable, form: Form) -> Refusal | None:
    """Why the table does not accept `form` of a known op; None if it does."""
    known = narrowed(table.name, form.op)
    if known.is_missing:
        return Refusal("op", f"{table.title} has no op {form.op}")
    violation = _violation(form, known)
    return None if violation is None else Refusal("other", f"{form.op} {violation}")


def _violation(form: Form, known: Narrowed) -> str | None:
    """The first operand or option of `form` that the kernel does not accept; None if it accepts all."""
    if known.most_values is not None and len(form.operands) > known.most_values:
        return f"accepts at most {known.most_values} operands, not {len(form.operands)}"
    names = [operand.name for operand in entry(form.op).operands]
    present = {name for name, value in zip(names, form.operands, strict=False) if value is not None}
    if missing := next((name for name in known.needed if name not in present), None):
        return f"needs the operand {missing}"
    if unread := next((name for name in known.absent if name in present), None):
        return f"has no operand {unread}"
    for name, value in known.only.items():
        if form.attributes.get(name, value) != value:
            return f"accepts {name} {value} only, not {form.attributes[name]}"
    return None
