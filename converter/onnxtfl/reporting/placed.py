"""Where the ops of a .tflite run: a section and cards of the page."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from onnxtfl.placement import PlacedOp, Placement, by_reason
from onnxtfl.reporting import elements as e
from onnxtfl.reporting.elements import Cell, Table
from onnxtfl.tables import byte_count

_REASONS = ("op", "#ops", "why", "what a conversion does", "names")
_OPS = ("#place", "op", "name", "where", "why", "nodes of the source", "#cycles")


def placement_section(placement: Placement) -> Markup:
    """The ops elsewhere by reason, and the place of each op."""
    parts = [e.macros().paragraph(f"{placement.target}: {placement.counts} (by {placement.by})", "small")]
    if placement.note:
        parts.insert(0, e.macros().paragraph(f"not checked on {placement.target}: {placement.note}", "note"))
    for title, key, ops in (
        ("Computed wrong", "faulty", placement.faulty),
        ("Ops elsewhere", "elsewhere", placement.elsewhere),
    ):
        if ops:
            rows = [
                (e.name(op), Cell(len(names), len(names)), reason, rewrite, e.name(", ".join(names)))
                for op, reason, rewrite, names in by_reason(ops)
            ]
            parts += [e.macros().heading(title), Table(key, _REASONS, rows).markup()]
    each = Table("placed", _OPS, [_op_row(op) for op in placement.ops], stack=False)
    parts.append(e.macros().details(f"each of the {len(placement.ops)} ops", each.markup()))
    return Markup(e.macros().section("placement", "Where the ops run", parts))


def _op_row(op: PlacedOp) -> tuple[object, ...]:
    return (
        Cell(op.index, op.index),
        op.op,
        e.name(op.name),
        Cell(op.where or "nowhere", style="" if op.where and not op.fault else "bad"),
        ": ".join(filter(None, (op.fault, op.reason))),
        e.name(", ".join(op.sources)),
        e.number(op.cycles, ",d"),
    )


def placement_cards(placement: Placement) -> Iterator[tuple[str, str, str]]:
    """Title, figure and note of each card."""
    there = len(placement.ops) - len(placement.elsewhere) - len(placement.faulty)
    yield f"On {placement.target}", f"{there} of {len(placement.ops)} ops", placement.parts
    if placement.sram is not None and placement.flash is not None:
        yield "Memory", f"{byte_count(placement.sram)} SRAM", f"{byte_count(placement.flash)} read-only"
    if placement.cycles and placement.inferences_per_second:
        yield "Speed", f"{placement.cycles:,} cycles", f"{placement.inferences_per_second:.3g} inferences per second"
