"""A report as one HTML file without network access: conversion, check, and time per op.

Text from models (names, messages) is escaped, and the policy of the page runs the page's own script only.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

from markupsafe import Markup

from onnxtfl.checking.report import CheckReport
from onnxtfl.conversion import Conversion, ConversionReport, islands
from onnxtfl.inspection import Inspection
from onnxtfl.reporting import elements as e
from onnxtfl.reporting.changes import MEANING, Change, changes
from onnxtfl.reporting.elements import Cell, Table
from onnxtfl.reporting.placed import placement_cards, placement_section
from onnxtfl.runtimes.profiles import Profile, SpeedChange
from onnxtfl.tables import byte_count, shape

_STYLES = {"passed": "passed", "failed": "failed"}
_VERDICTS = {"passed": "The models agree", "failed": "The models differ", "not checked": "Not checked"}


class Subject(NamedTuple):
    """The subject of a page: names of the two models, the conversion (None: only a check), and the check."""

    a: str
    b: str
    conversion: Conversion | None
    check: CheckReport | None


def page(subject: Subject) -> str:
    """The page of a conversion or a check."""
    a, b = _file(subject.a), _file(subject.b)
    return _rendered(
        title=f"{a} and {b}",
        heading=f"{a} {'became' if subject.conversion is not None else 'and'} {b}",
        paths=f"{subject.a}, {subject.b}",
        verdict=_verdict(subject.check),
        cards=list(_cards(subject)),
        sections=_sections(subject),
        footer=_footer(subject.check),
    )


def inspection_page(found: Inspection) -> str:
    """The page of an inspection: its summary, its ops, and where these run."""
    counts, placement = dict(found.summary.ops), found.placement
    rows = [(row.title, row.text) for row in replace(found, placement=None).rows()]
    summary = Table("summary-table", ("what", "content"), rows).markup()
    cards = [("Size", byte_count(found.summary.size), ""), ("Ops", str(sum(counts.values())), f"{len(counts)} kinds")]
    sections = [_section("summary", "Summary", summary)]
    if placement is not None:
        cards += placement_cards(placement)
        sections.append(placement_section(placement))
    sections.append(_section("ops", "Ops", _op_table("ops-a", counts)) if counts else Markup())
    name = _file(found.name)
    shown = {"title": name, "heading": name, "paths": found.name, "verdict": None, "footer": _footer(None)}
    return _rendered(cards=cards, sections=sections, **shown)


def _rendered(**content: object) -> str:
    style, script = e.file_text("page.css"), e.file_text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    template = e.environment().get_template("page.html")
    return template.render(style=Markup(style), script=Markup(script), digest=digest, **content)


def _file(path: str) -> str:
    """Return the name of the file, with its folder if the name is generic."""
    parts = PurePath(path).parts
    return "/".join(parts[-2:] if PurePath(path).stem.lower() == "model" else parts[-1:]) or path


def _sections(subject: Subject) -> list[Markup]:
    check, report = subject.check, None if subject.conversion is None else subject.conversion.report
    parts = [] if check is None else [_outputs(check), _depth(check), _inputs(check)]
    parts.append(_ops(subject))
    parts += [_speed(check.speed)] if check is not None and check.speed is not None else []
    parts += [_times(check.profiles)] if check is not None and check.profiles else []
    if subject.conversion is not None:
        parts.append(_changes(subject.conversion))
    if report is not None:
        placed = Markup() if report.placement is None else placement_section(report.placement)
        parts += [placed, _quantized(report), _interface(report), _passes(report)]
    return [part for part in parts if part]


def _verdict(check: CheckReport | None) -> dict[str, object]:
    if check is None:
        reason = "The conversion was run without a check."
        return {"style": "unchecked", "title": _VERDICTS["not checked"], "reason": reason, "first": None, "notes": []}
    return {
        "style": _STYLES.get(check.status, "unchecked"),
        "title": _VERDICTS[check.status] + (f" (except {check.excluded})" if check.ok and check.excluded else ""),
        "reason": check.reason,
        "first": check.first_difference,
        "notes": [note for note in check.notes if note != str(check.first_difference)],
    }


def _cards(subject: Subject) -> Iterator[tuple[str, str, str]]:
    """Title, figure and note of each card."""
    check, conversion = subject.check, subject.conversion
    if any(_counts(subject)):
        yield ("Size", *_sizes(subject))
        yield ("Ops", *_op_totals(subject))
    if check is not None and check.max_abs is not None:
        relative = f"{check.max_rel:.3g} relative" if check.max_rel is not None else ""
        yield "Largest error", f"{check.max_abs:.3g}", relative
    for profile in () if check is None else check.profiles:
        if profile.milliseconds is not None:
            yield f"One run in {profile.runtime}", f"{profile.milliseconds:.3g} ms", "one thread"
        if profile.total:
            share = f"{profile.delegated} of {profile.total} ops"
            yield "Delegated", share, profile.delegate or "no delegate takes any"
    if conversion is not None:
        memory = f"{byte_count(conversion.report.peak_memory)} of memory" if conversion.report.peak_memory else ""
        yield "Conversion", f"{conversion.report.seconds:.2f} s", memory
    if check is not None and check.outputs:
        yield "Check", f"{check.seconds:.2f} s", f"{check.runs} runs" if check.runs > 1 else "1 run"


def _sizes(subject: Subject) -> tuple[str, str]:
    before, after = _size_pair(subject)
    if after is None:
        return "unknown", ""
    if not before:
        return byte_count(after), ""
    return f"{byte_count(before)} → {byte_count(after)}", f"{after / before:.2f} times, with external data"


def _size_pair(subject: Subject) -> tuple[int | None, int | None]:
    if subject.conversion is not None:
        return subject.conversion.report.source_size, subject.conversion.report.size
    models = () if subject.check is None else subject.check.models
    return (models[0].size, models[1].size) if len(models) == 2 else (None, None)


def _counts(subject: Subject) -> tuple[dict[str, int], dict[str, int]]:
    """The number of ops by name in both models."""
    if subject.conversion is not None:
        return dict(subject.conversion.report.ops_before), dict(subject.conversion.report.ops_after)
    models = () if subject.check is None else subject.check.models
    return (dict(models[0].ops), dict(models[1].ops)) if len(models) == 2 else ({}, {})


def _op_totals(subject: Subject) -> tuple[str, str]:
    before, after = _counts(subject)
    return f"{sum(before.values())} → {sum(after.values())}", f"{len(before)} → {len(after)} kinds"


def _section(id_: str, title: str, *parts: Markup) -> Markup:
    """A section of the page; empty if it has no content."""
    return Markup(e.macros().section(id_, title, parts))


def _outputs(check: CheckReport) -> Markup:
    rows = [
        (
            e.name(out.name),
            Cell("within tolerance", 0, "good") if out.ok else Cell(out.message or "differs", 1, "bad"),
            f"{out.dtype} {'' if out.shape is None else shape(out.shape)}",
            e.number(out.max_abs),
            e.number(out.max_rel),
            "; ".join(part for part in (out.in_steps, out.note, out.acceptance) if part),
        )
        for out in check.outputs
    ]
    rule = (
        f"Floats may differ by {check.rtol:g} |a| + {check.atol:g} max|a|; integers are equal; quantized outputs are "
        "within one step, without a mean error. A relative error is |b − a| / max(|a|, 0.001 max|a|)."
    )
    columns = ("output", "result", "type", "#absolute error", "#relative error", "note")
    table = Table("outputs-table", columns, rows)
    return (
        _section("outputs", "Outputs", table.markup(), e.macros().paragraph(rule, "soft small")) if rows else Markup()
    )


def _depth(check: CheckReport) -> Markup:
    if not check.layers:
        return Markup()
    limit = check.rtol + check.atol
    first = None if check.first_difference is None else check.first_difference.b
    marked = next((k for k, layer in enumerate(check.layers) if layer.b == first), None)
    points = [
        e.Point(layer.error, layer.own, f"{layer.op} {layer.b}: error {layer.error:.3g}{_own(layer.own)}")
        for layer in check.layers
    ]
    rows = [
        (
            Cell(k, k),
            layer.op,
            e.name(layer.b),
            e.name(layer.a),
            e.number(layer.error, style="" if layer.error <= limit else "bad"),
            e.number(layer.own),
        )
        for k, layer in enumerate(check.layers)
    ]
    columns = ("#place", "op", "tensor", "tensor of the reference", "#error", "#own error")
    text = "The largest difference of each tensor that both models compute, relative to its largest value."
    table = Table("layers-table", columns, rows, stack=False, marked=frozenset(() if marked is None else (marked,)))
    parts = e.plot(points, limit, marked), e.macros().legend(limit), e.macros().paragraph(text, "soft small")
    return _section(
        "depth", "Error along the depth", *parts, e.macros().details(f"{len(rows)} tensors", table.markup())
    )


def _own(own: float | None) -> str:
    return "" if own is None else f", of the op alone {own:.3g}"


def _inputs(check: CheckReport) -> Markup:
    rows: list[tuple[object, ...]] = [
        (e.name(spec.name), spec.dtype, shape(spec.shape), spec.values, spec.note) for spec in check.inputs
    ]
    columns: tuple[str, ...] = ("input", "type", "shape", "values", "in the second model")
    if not any(spec.note for spec in check.inputs):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    table = Table("inputs-table", columns, rows)
    return _section("inputs", "Inputs of the check", table.markup()) if rows else Markup()


def _ops(subject: Subject) -> Markup:
    before, after = _counts(subject)
    if not before and not after:
        return Markup()
    tables = [
        e.macros().heading(f"{_file(title)}: {sum(counts.values())}") + _op_table(id_, counts)
        for id_, title, counts in (("ops-a", subject.a, before), ("ops-b", subject.b, after))
    ]
    return _section("ops", "Ops", e.macros().columns(tables))


def _op_table(id_: str, counts: dict[str, int]) -> Markup:
    largest = max(counts.values(), default=1)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    style = "b" if id_ == "ops-b" else ""
    rows = [
        (e.name(op), Cell(count, count), Cell(e.macros().bar(count / largest, style), count)) for op, count in ranked
    ]
    return Table(id_, ("op", "#count", "=share"), rows, stack=False).markup()


def _times(profiles: Sequence[Profile]) -> Markup:
    parts = [_profile(k, profile) for k, profile in enumerate(profiles)]
    note = (
        "Each runtime measured its own ops on one thread, on the inputs of the check; measuring takes time itself, so "
        "the sum is larger than one run without it. Names are those of the runtime: it fuses ops, and a delegate "
        "has kernels of its own."
    )
    return _section("times", "Time per op", *parts, e.macros().paragraph(note, "soft small"))


def _profile(k: int, profile: Profile) -> Markup:
    total = sum(op.milliseconds for op in profile.ops)
    parts: list[Markup] = [e.macros().heading(profile.runtime)]
    if profile.note:
        parts.append(e.macros().paragraph(f"Times per op: {profile.note}", "note"))
    if profile.total:
        by = f"{profile.delegate} takes {profile.delegated}" if profile.delegate else "No delegate takes any"
        groups = f", in {profile.partitions} partitions" if profile.partitions > 1 else ""
        told = f"{by} of the {profile.total} ops of the main graph{groups}."
        parts += [e.macros().paragraph(told, "small"), e.macros().track(profile.delegated / profile.total)]
    if not profile.ops:
        return Markup().join(parts)
    kinds: dict[str, float] = {}
    for op in profile.ops:
        kinds[op.op] = kinds.get(op.op, 0.0) + op.milliseconds
    numbers = Counter(op.op for op in profile.ops)
    rows = [
        (e.name(op), Cell(numbers[op], numbers[op]), e.number(spent, ".3f"), *_share(spent, total))
        for op, spent in sorted(kinds.items(), key=lambda item: -item[1])
    ]
    table = Table(f"kinds-{k}", ("op", "#count", "#ms", "#%", "=share"), rows, stack=False)
    each = [(Cell(i, i), op.op, e.name(op.name), e.number(op.milliseconds, ".4f")) for i, op in enumerate(profile.ops)]
    every = Table(f"times-{k}", ("#place", "op", "name", "#ms"), each, stack=False)
    return Markup().join(
        [*parts, table.markup(), e.macros().details(f"{len(each)} ops, {total:.3g} ms", every.markup())]
    )


def _speed(change: SpeedChange) -> Markup:
    """Size and time before and after quantizing, and the ops that add time."""
    rows = [
        (
            name,
            Cell(byte_count(s.size), s.size),
            e.number(s.milliseconds),
            Cell(s.delegated, s.delegated),
            Cell(s.total, s.total),
        )
        for name, s in (("float", change.before), (change.mode, change.after))
    ]
    parts: list[Markup] = [Table("speed-table", ("model", "#size", "#ms", "#delegated ops", "#ops"), rows).markup()]
    if change.added:
        added = [(e.name(op.op), e.number(op.milliseconds)) for op in change.added]
        parts += [e.macros().heading("Slower ops"), Table("added", ("op", "#ms more"), added).markup()]
    return _section("speed", "Before and after quantizing", *parts, e.macros().paragraph(str(change), "soft small"))


def _share(part: float, total: float) -> tuple[Cell, Cell]:
    share = part / total if total else 0.0
    return e.number(100 * share, ".1f"), Cell(e.macros().bar(share), share)


def _changes(conversion: Conversion) -> Markup:
    if conversion.record is None or not conversion.record.ops:
        return Markup()
    found = changes(conversion.record.ops)
    kinds = Counter(change.kind for change in found)
    summary = [(kind, Cell(kinds[kind], kinds[kind]), meaning) for kind, meaning in MEANING.items() if kinds[kind]]
    reasons = Counter((change.kind, change.op, change.why) for change in found if change.why)
    why = [(kind, e.name(op), Cell(n, n), told) for (kind, op, told), n in reasons.most_common()]
    rows = [_change_row(k, change) for k, change in enumerate(found)]
    return _section(
        "changes",
        "What the conversion did",
        Table("kinds", ("what", "#ops", "meaning"), summary).markup(),
        e.macros().heading("Why"),
        Table("why", ("what", "op", "#ops", "why"), why).markup(),
        e.macros().details(f"each of the {len(rows)} ops", Table("changed", _CHANGED, rows, stack=False).markup()),
    )


_CHANGED = ("#place", "what", "op", "tensor", "nodes of the source", "why")


def _change_row(k: int, change: Change) -> tuple[object, ...]:
    more = f" and {len(change.sources) - 12} more" if len(change.sources) > 13 else ""
    sources = e.name(", ".join(change.sources[:12] if more else change.sources) + more)
    return Cell(k, k), change.kind, e.name(change.op), e.name(change.target), sources, change.why


def _quantized(report: ConversionReport) -> Markup:
    summary = report.quantization
    if summary is None:
        return Markup()
    counts = sum(summary.integer_ops.values()), sum(summary.hybrid_ops.values()), len(summary.float_ops)
    rows = [
        ("integers", Cell(counts[0], counts[0]), _listed(summary.integer_ops)),
        ("floats and integer weights", Cell(counts[1], counts[1]), _listed(summary.hybrid_ops)),
        ("floats", Cell(counts[2], counts[2]), _listed(Counter(op.op for op in summary.float_ops))),
    ]
    parts: list[Markup] = [Table("quantized-table", ("computed on", "#ops", "which"), rows).markup()]
    found = [
        (e.name(op), Cell(len(names), len(names)), reason, e.name(", ".join(names)))
        for op, reason, names in islands(summary)
    ]
    if found:
        title = "Islands: ops that the source quantizes and the result computes on floats"
        parts += [e.macros().heading(title), Table("islands", ("op", "#ops", "why", "nodes"), found).markup()]
    for id_, title, entries in (
        ("biases", "Biases with another scale", summary.rescaled_biases),
        ("requantized", "Requantized tensors", summary.requantized),
        ("kernels", "Ops that the source's runtime computes otherwise", summary.kernels),
        (
            "faults",
            "Faults of runtime releases that were not measured",
            [(k, f"{n} ops") for k, n in summary.faults.items()],
        ),
    ):
        if entries:
            changed = [(e.name(tensor), what) for tensor, what in entries]
            parts.append(
                e.macros().details(f"{title}: {len(changed)}", Table(id_, ("tensor", "change"), changed).markup())
            )
    return _section("quantized", "Quantized ops", *parts)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {op}" for op, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _interface(report: ConversionReport) -> Markup:
    rows = [("input", e.name(spec.name), spec.dtype, shape(spec.shape)) for spec in report.inputs]
    rows += [("output", e.name(spec.name), spec.dtype, shape(spec.shape)) for spec in report.outputs]
    parts: list[Markup] = [Table("interface-table", ("what", "tensor", "type", "shape"), rows).markup()]
    title, lines = "", list[str]()
    for row in report.rows(verbose=True):
        title = row.title or title
        lines += [row.text] if title in ("state", "sequences", "signatures") else []
    lines += [f"assumed: {what}" for what in report.assumptions]
    lines += [f"left out: {what}, too large" for what in report.dropped_metadata]
    return _section("interface", "Inputs and outputs of the result", *parts, e.macros().items(lines))


def _passes(report: ConversionReport) -> Markup:
    if not report.passes:
        return Markup()
    rows = [
        (Cell(k, k), name, e.number(1000 * seconds, ".1f"), Cell(nodes, nodes))
        for k, (name, seconds, nodes) in enumerate(report.passes)
    ]
    table = Table("passes-table", ("#place", "pass", "#ms", "#nodes after it"), rows, stack=False)
    return _section("passes", "Steps of the conversion", e.macros().details(f"{len(rows)} steps", table.markup()))


def _footer(check: CheckReport | None) -> str:
    from importlib.metadata import version

    parts = [f"onnxtfl {version('onnxtfl')}"]
    if check is not None:
        settings = f"rtol {check.rtol:g}, atol {check.atol:g}, seed {check.seed}"
        parts += [*check.runtimes, settings]
    return " · ".join(parts)
