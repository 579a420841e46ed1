"""A report as one HTML file without any network access: what was converted, how the check went, and where time goes.

Text from models (names, messages) is escaped, and the policy of the page runs the page's own script only.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import PurePath
from typing import NamedTuple

from onnxtfl.checking.profile import Profile
from onnxtfl.checking.report import CheckReport
from onnxtfl.conversion import Conversion, ConversionReport, islands
from onnxtfl.reporting import elements as e
from onnxtfl.reporting.changes import MEANING, Change, changes
from onnxtfl.reporting.elements import Cell, Table
from onnxtfl.tables import byte_count, shape

_STYLES = {"passed": "passed", "failed": "failed"}
_VERDICTS = {"passed": "The models agree", "failed": "The models differ", "not checked": "Not checked"}


class Subject(NamedTuple):
    """What a page is about: names of the two models, the conversion (None: only a check), and the check."""

    a: str
    b: str
    conversion: Conversion | None
    check: CheckReport | None


def page(subject: Subject) -> str:
    """The page."""
    folder = resources.files("onnxtfl.reporting")
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    title = e.text(f"{_file(subject.a)} and {_file(subject.b)}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>onnxtfl: {title}</title><style>{style}</style></head>\n<body>"
        f"{_header(subject)}\n<main>{_content(subject)}</main>\n<script>{script}</script></body></html>\n"
    )


def _header(subject: Subject) -> str:
    between = "became" if subject.conversion is not None else "and"
    names = f"{e.text(_file(subject.a))} {between} {e.text(_file(subject.b))}"
    paths = e.name(f"{subject.a}, {subject.b}")
    toggle = '<button type="button" class="toggle" id="theme">Dark</button>'
    return f'<header><div><h1>{names}</h1><p class="soft small">{paths}</p></div>{toggle}</header>'


def _file(path: str) -> str:
    """The name of the file; with its folder where it says nothing."""
    parts = PurePath(path).parts
    return "/".join(parts[-2:] if PurePath(path).stem.lower() == "model" else parts[-1:]) or path


def _content(subject: Subject) -> str:
    check, report = subject.check, None if subject.conversion is None else subject.conversion.report
    parts = [_verdict(check), _cards(subject)]
    if check is not None:
        parts += [_outputs(check), _depth(check), _inputs(check)]
    parts.append(_ops(subject))
    parts += [_times(check.profiles)] if check is not None and check.profiles else []
    if subject.conversion is not None:
        parts.append(_changes(subject.conversion))
    if report is not None:
        parts += [_quantized(report), _interface(report), _passes(report)]
    return "\n".join(parts) + _footer(check)


def _verdict(check: CheckReport | None) -> str:
    status = "not checked" if check is None else check.status
    lines = [f"<strong>{_VERDICTS[status]}</strong>"]
    if check is None:
        lines.append(e.paragraph("The conversion was run without a check."))
    elif check.reason:
        lines.append(e.paragraph(check.reason))
    if check is not None and check.first_difference is not None:
        found = check.first_difference
        told = f"The first op whose result differs: <b>{e.text(found.op)}</b> {e.name(found.b)}"
        told += f" (node {e.name(found.node)})" if found.node != found.b else ""
        errors = f"Its own error is {found.error:.3g} of the largest value; its inputs differ by {found.error_in:.3g}."
        lines.append(f'<div class="first">{told}<br><span class="small">{errors}</span></div>')
    if check is not None:
        lines.append(e.items(note for note in check.notes if note != str(check.first_difference)))
    return f'<div class="verdict {_STYLES.get(status, "unchecked")}">{"".join(lines)}</div>'


def _cards(subject: Subject) -> str:
    check, conversion = subject.check, subject.conversion
    cards = [e.card("Size", *_sizes(subject)), e.card("Ops", *_op_totals(subject))] if any(_counts(subject)) else []
    if check is not None and check.max_abs is not None:
        relative = f"{check.max_rel:.3g} relative" if check.max_rel is not None else ""
        cards.append(e.card("Largest error", f"{check.max_abs:.3g}", relative))
    for profile in () if check is None else check.profiles:
        if profile.milliseconds is not None:
            cards.append(e.card(f"One run in {profile.runtime}", f"{profile.milliseconds:.3g} ms", "one thread"))
        if profile.total:
            share = f"{profile.delegated} of {profile.total} ops"
            cards.append(e.card("Delegated", share, profile.delegate or "no delegate takes any"))
    if conversion is not None:
        memory = f"{byte_count(conversion.report.peak_memory)} of memory" if conversion.report.peak_memory else ""
        cards.append(e.card("Conversion", f"{conversion.report.seconds:.2f} s", memory))
    if check is not None and check.outputs:
        runs = f"{check.runs} runs" if check.runs > 1 else "1 run"
        cards.append(e.card("Check", f"{check.seconds:.2f} s", runs))
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


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


def _outputs(check: CheckReport) -> str:
    rows = [
        (
            e.name(out.name),
            Cell("within tolerance", 0, "good") if out.ok else Cell(out.message or "differs", 1, "bad"),
            f"{out.dtype} {'' if out.shape is None else shape(out.shape)}",
            e.number(out.max_abs),
            e.number(out.max_rel),
            "; ".join(part for part in (out.in_steps, out.note) if part),
        )
        for out in check.outputs
    ]
    rule = (
        f"Floats may differ by {check.rtol:g} |a| + {check.atol:g} max|a|; integers are equal; quantized outputs are "
        "within one step on 99 % of the elements. A relative error is |b − a| / max(|a|, 0.001 max|a|)."
    )
    columns = ("output", "result", "type", "#absolute error", "#relative error", "note")
    table = Table("outputs-table", columns, rows)
    return e.section("outputs", "Outputs", table.markup(), e.paragraph(rule, "soft small")) if rows else ""


def _depth(check: CheckReport) -> str:
    if not check.layers:
        return ""
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
    legend = (
        '<div class="legend"><span><i></i>error, each model on its own values</span>'
        '<span><i class="own"></i>error of the op alone, on values of the reference</span>'
        f'<span><i class="over"></i>more than {limit:g}</span></div>'
    )
    text = "The largest difference of each tensor that both models compute, relative to its largest value."
    table = Table("layers-table", columns, rows, stack=False, marked=frozenset(() if marked is None else (marked,)))
    parts = e.plot(points, limit, marked), legend, e.paragraph(text, "soft small")
    return e.section("depth", "Error along the depth", *parts, e.details(f"{len(rows)} tensors", table.markup()))


def _own(own: float | None) -> str:
    return "" if own is None else f", of the op alone {own:.3g}"


def _inputs(check: CheckReport) -> str:
    rows: list[tuple[object, ...]] = [
        (e.name(spec.name), spec.dtype, shape(spec.shape), spec.values, spec.note) for spec in check.inputs
    ]
    columns: tuple[str, ...] = ("input", "type", "shape", "values", "in the second model")
    if not any(spec.note for spec in check.inputs):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    table = Table("inputs-table", columns, rows)
    return e.section("inputs", "Inputs of the check", table.markup()) if rows else ""


def _ops(subject: Subject) -> str:
    before, after = _counts(subject)
    if not before and not after:
        return ""
    tables = [
        f"<div><h3>{e.text(_file(title))}: {sum(counts.values())}</h3>{_op_table(id_, counts)}</div>"
        for id_, title, counts in (("ops-a", subject.a, before), ("ops-b", subject.b, after))
    ]
    return e.section("ops", "Ops", f'<div class="two">{"".join(tables)}</div>')


def _op_table(id_: str, counts: dict[str, int]) -> str:
    largest = max(counts.values(), default=1)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    style = "b" if id_ == "ops-b" else ""
    rows = [(e.name(op), Cell(count, count), Cell(e.bar(count / largest, style), count)) for op, count in ranked]
    return Table(id_, ("op", "#count", "=share"), rows, stack=False).markup()


def _times(profiles: Sequence[Profile]) -> str:
    parts = [_profile(k, profile) for k, profile in enumerate(profiles)]
    note = (
        "Each runtime measured its own ops on one thread, on the inputs of the check; measuring takes time itself, so "
        "the sum is larger than one run without it. Names are those of the runtime: it fuses ops, and a delegate "
        "has kernels of its own."
    )
    return e.section("times", "Time per op", *parts, e.paragraph(note, "soft small"))


def _profile(k: int, profile: Profile) -> str:
    total = sum(op.milliseconds for op in profile.ops)
    parts = [f"<h3>{e.text(profile.runtime)}</h3>"]
    if profile.note:
        parts.append(f'<p class="note">Times per op: {e.text(profile.note)}</p>')
    if profile.total:
        by = f"{profile.delegate} takes {profile.delegated}" if profile.delegate else "No delegate takes any"
        told = f"{by} of the {profile.total} ops of the main graph."
        parts += [e.paragraph(told, "small"), e.track(profile.delegated / profile.total)]
    if not profile.ops:
        return "".join(parts)
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
    return "".join([*parts, table.markup(), e.details(f"{len(each)} ops, {total:.3g} ms", every.markup())])


def _share(part: float, total: float) -> tuple[Cell, Cell]:
    share = part / total if total else 0.0
    return e.number(100 * share, ".1f"), Cell(e.bar(share), share)


def _changes(conversion: Conversion) -> str:
    if conversion.record is None or not conversion.record.ops:
        return ""
    found = changes(conversion.record.ops)
    kinds = Counter(change.kind for change in found)
    summary = [(kind, Cell(kinds[kind], kinds[kind]), meaning) for kind, meaning in MEANING.items() if kinds[kind]]
    reasons = Counter((change.kind, change.op, change.why) for change in found if change.why)
    why = [(kind, e.name(op), Cell(n, n), told) for (kind, op, told), n in reasons.most_common()]
    rows = [_change_row(k, change) for k, change in enumerate(found)]
    return e.section(
        "changes",
        "What the conversion did",
        Table("kinds", ("what", "#ops", "meaning"), summary).markup(),
        "<h3>Why</h3>",
        Table("why", ("what", "op", "#ops", "why"), why).markup(),
        e.details(f"each of the {len(rows)} ops", Table("changed", _CHANGED, rows, stack=False).markup()),
    )


_CHANGED = ("#place", "what", "op", "tensor", "nodes of the source", "why")


def _change_row(k: int, change: Change) -> tuple[object, ...]:
    more = f" and {len(change.sources) - 12} more" if len(change.sources) > 13 else ""
    sources = e.name(", ".join(change.sources[:12] if more else change.sources) + more)
    return Cell(k, k), change.kind, e.name(change.op), e.name(change.target), sources, change.why


def _quantized(report: ConversionReport) -> str:
    summary = report.quantization
    if summary is None:
        return ""
    counts = sum(summary.integer_ops.values()), sum(summary.hybrid_ops.values()), len(summary.float_ops)
    rows = [
        ("integers", Cell(counts[0], counts[0]), _listed(summary.integer_ops)),
        ("floats and integer weights", Cell(counts[1], counts[1]), _listed(summary.hybrid_ops)),
        ("floats", Cell(counts[2], counts[2]), _listed(Counter(op.op for op in summary.float_ops))),
    ]
    parts: list[str] = [Table("quantized-table", ("computed on", "#ops", "which"), rows).markup()]
    found = [
        (e.name(op), Cell(len(names), len(names)), reason, e.name(", ".join(names)))
        for op, reason, names in islands(summary)
    ]
    if found:
        title = "<h3>Islands: ops that the source quantizes and the result computes on floats</h3>"
        parts += [title, Table("islands", ("op", "#ops", "why", "nodes"), found).markup()]
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
            parts.append(e.details(f"{title}: {len(changed)}", Table(id_, ("tensor", "change"), changed).markup()))
    return e.section("quantized", "Quantized ops", *parts)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {op}" for op, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _interface(report: ConversionReport) -> str:
    rows = [("input", e.name(spec.name), spec.dtype, shape(spec.shape)) for spec in report.inputs]
    rows += [("output", e.name(spec.name), spec.dtype, shape(spec.shape)) for spec in report.outputs]
    parts: list[str] = [Table("interface-table", ("what", "tensor", "type", "shape"), rows).markup()]
    title, lines = "", list[str]()
    for row in report.rows(verbose=True):
        title = row.title or title
        lines += [row.text] if title in ("state", "sequences", "signatures") else []
    lines += [f"assumed: {what}" for what in report.assumptions]
    lines += [f"left out: {what}, too large" for what in report.dropped_metadata]
    return e.section("interface", "Inputs and outputs of the result", *parts, e.items(lines))


def _passes(report: ConversionReport) -> str:
    if not report.passes:
        return ""
    rows = [
        (Cell(k, k), name, e.number(1000 * seconds, ".1f"), Cell(nodes, nodes))
        for k, (name, seconds, nodes) in enumerate(report.passes)
    ]
    table = Table("passes-table", ("#place", "pass", "#ms", "#nodes after it"), rows, stack=False)
    return e.section("passes", "Steps of the conversion", e.details(f"{len(rows)} steps", table.markup()))


def _footer(check: CheckReport | None) -> str:
    from importlib.metadata import version

    parts = [f"onnxtfl {version('onnxtfl')}"]
    if check is not None:
        settings = f"rtol {check.rtol:g}, atol {check.atol:g}, seed {check.seed}"
        parts += [*check.runtimes, settings]
    return f"<footer>{e.text(' · '.join(parts))}</footer>"
