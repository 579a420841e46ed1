"""The tables that the commands print: the report of a conversion and of a check."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from onnxtfl import (
        CheckReport,
        Conversion,
        ConversionReport,
        OutputCheck,
        QuantizationSummary,
        StateReport,
        TensorReport,
    )

MANY = 8  # operators that are named; the rest is one count
STYLES = {"passed": "green", "failed": "red", "not checked": "yellow"}


class Row(NamedTuple):
    """A line of a table: title ("": that of the line above), text, and its style on a terminal."""

    title: str
    text: str
    style: str = ""


def show_conversion(model: str, output: str, conversion: Conversion, verbose: bool) -> None:
    """Print the report of a conversion; ``output``: the path asked for."""
    report = conversion.report
    rows = [Row("model", f"{model} -> {output}" if conversion.path else f"{model} (nothing written)")]
    rows += _titled("inputs", [_tensor(spec) for spec in report.inputs])
    rows += _titled("outputs", [_tensor(spec) for spec in report.outputs])
    rows += _titled("sequences", [_elements(*entry) for entry in report.elements.items()])
    rows += _state_rows(report.states) + _kept_rows(report.kept_states, verbose)
    if report.other_signatures:
        others = _some(list(report.other_signatures), verbose)
        rows.append(Row("signatures", f"not converted: {others} (--signature KEY, or 'all')"))
    rows.append(Row("ops before", _ops(report.ops_before, verbose)))
    rows.append(Row("ops after", _ops(report.ops_after, verbose)))
    if report.quantization is not None:
        rows += _quantization_rows(report.quantization, verbose)
    rows.append(Row("size", _size(report)))
    memory = f", peak memory {_bytes(report.peak_memory)}" if report.peak_memory else ""
    rows.append(Row("time", f"{report.seconds:.2f} s{memory}"))
    if verbose:
        passes = [f"{name:18} {1000 * seconds:8.1f} ms {nodes:6} nodes" for name, seconds, nodes in report.passes]
        rows += _titled("passes", passes)
    if conversion.check is not None:
        rows += _check_rows(conversion.check, verbose)
    _print(rows)


def _state_rows(states: Sequence[StateReport]) -> list[Row]:
    """What to feed as states."""
    lines = list(map(_state, states))
    lines += ["(with --state reset each run begins with the initial values)"] if lines else []
    return _titled("state", lines)


def _kept_rows(names: Sequence[str] | None, verbose: bool) -> list[Row]:
    """What is kept from run to run, where that was asked for."""
    if names is None:
        return []
    if not names:
        return [Row("state", "no layer begins from zeros and has a kernel that keeps its state", "yellow")]
    return _titled("state", [f"kept from run to run: {_some(names, verbose)}", "(reset_all_variables() begins anew)"])


def _state(state: StateReport) -> str:
    if state.input is None:
        return f"{state.output} is written for other entry points"
    first = "what another entry point writes"
    if state.initial is not None:
        first = f"{state.initial.reshape(-1)[0]}" if state.initial.size == 1 else "the value in the metadata"
    later = "" if state.output is None else f", then {state.output} of the run before"
    return f"feed {state.input}: {first} in the first run{later}"


def _quantization_rows(summary: QuantizationSummary, verbose: bool) -> list[Row]:
    """The lines about a quantized model; a warning where ops are quantized in the source only."""
    counts = [
        (sum(summary.integer_ops.values()), "ops compute on integers"),
        (sum(summary.hybrid_ops.values()), "on floats and integer weights"),
        (len(summary.float_ops), "on floats"),
    ]
    lines = [", ".join(f"{count} {how}" for i, (count, how) in enumerate(counts) if count or not i)]
    own = Counter(op.op for op in summary.float_ops if not op.island)
    lines += [f"on floats, as in the source: {_ranked(own, verbose)}"] if own else []
    for entries, what in (
        (summary.rescaled_biases, "biases with another scale"),
        (summary.requantized, "tensors requantized"),
    ):
        shown = [f"{name} ({change})" if verbose else name for name, change in entries]
        lines += [f"{len(entries)} {what}: {_some(shown, verbose)}"] if entries else []
    if summary.tolerance:
        lines.append(f"hybrid kernels round activations: tolerance {summary.tolerance:g} of the largest element")
    if summary.coarse_ops:
        lines.append("kernels round coarsely: " + ", ".join(f"{op} {n} steps" for op, n in summary.coarse_ops.items()))
    warnings = [Row("warning", f"{name}: {text}", "yellow") for name, text in summary.kernels]
    return _titled("quantized", lines) + warnings + _island_rows(summary, verbose)


def _island_rows(summary: QuantizationSummary, verbose: bool) -> list[Row]:
    sources: dict[tuple[str, str], list[str]] = {}
    for op in summary.islands:
        sources.setdefault((op.source_op, op.reason), []).extend(op.sources)
    named = {key: list(dict.fromkeys(names)) for key, names in sources.items()}
    lines = [
        f"{len(names)} {op}: {reason}" + (f" ({', '.join(names)})" if verbose else "")
        for (op, reason), names in sorted(named.items(), key=lambda item: -len(item[1]))
    ]
    count = sum(map(len, named.values()))
    lines = [f"{count} ops that the source quantizes compute on floats:", *lines] if lines else []
    return [Row("" if k else "warning", line, "yellow") for k, line in enumerate(lines)]


def show_check(a: str, b: str, report: CheckReport, verbose: bool) -> None:
    """Print the report of a check."""
    _print([Row("models", f"{a} and {b}"), *_check_rows(report, verbose)])


def _check_rows(report: CheckReport, verbose: bool) -> list[Row]:
    verdict = f"{report.status}: {report.reason}" if report.status == "not checked" else report.status
    if report.runtimes and report.status != "not checked":
        runs = f"{report.runs} runs; " if report.runs > 1 else ""
        verdict += f" ({', '.join(report.runtimes)}; {runs}{report.seconds:.2f} s)"
    rows = [Row("check", verdict, STYLES[report.status])]
    for spec in report.inputs:
        used = f"{spec.name}  {spec.dtype} {_shape(spec.shape)}: {spec.values}" if verbose else spec.name
        if verbose or spec.note:
            rows.append(Row("", f"{used}  {spec.note}".rstrip()))
    rows += [Row("", _output(out), "" if out.ok else "red") for out in report.outputs]
    return rows + [Row("", note) for note in report.notes]


def _output(out: OutputCheck) -> str:
    parts = [out.name]
    if out.max_abs is not None:
        parts.append(f"largest error {out.max_abs:.3g} absolute, {out.max_rel:.3g} relative")
    parts += [out.in_steps] if out.in_steps else []
    parts += [out.message] if out.message else []
    parts += [f"({out.note})"] if out.note else []
    return "  ".join(parts)


def _print(rows: list[Row]) -> None:
    """Print to stdout: in colour and wrapped on a terminal, else without styles, one line for each row."""
    if not sys.stdout.isatty():
        width = max(len(row.title) for row in rows)
        sys.stdout.writelines(_printable(f"{row.title:{width}}  {row.text}") + "\n" for row in rows)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(row.title, Text(_printable(row.text), style=row.style))
    Console(highlight=False).print(table)


def _printable(line: str) -> str:
    """Return ``line`` without control characters (a file's names may hold some) and what stdout cannot encode."""
    encoding = sys.stdout.encoding or "utf-8"
    printable = "".join(char if char.isprintable() else "?" for char in line)
    return printable.encode(encoding, "backslashreplace").decode(encoding)


def _titled(title: str, lines: Iterable[str]) -> list[Row]:
    return [Row("" if k else title, line) for k, line in enumerate(lines)]


def _elements(name: str, tensors: Sequence[str]) -> str:
    """What became of an input or output of sequence or optional type."""
    if tuple(tensors) == (name,):
        return f"{name} is one tensor"
    return f"{name} became {', '.join(tensors)}" if tensors else f"{name} has no elements"


def _tensor(spec: TensorReport) -> str:
    return f"{spec.name}  {spec.dtype} {_shape(spec.shape)}"


def _shape(shape: Iterable[object]) -> str:
    return "[" + ",".join(str(dim) for dim in shape) + "]"


def _ops(counts: Mapping[str, int], verbose: bool) -> str:
    """Return the number of nodes and the most frequent operators."""
    return f"{sum(counts.values())}: {_ranked(counts, verbose)}" if counts else "0"


def _ranked(counts: Mapping[str, int], verbose: bool) -> str:
    """Return the most frequent operators with their counts."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = ranked if verbose else ranked[:MANY]
    rest = sum(count for _, count in ranked[len(named) :])
    return ", ".join([f"{count} {name}" for name, count in named] + ([f"{rest} others"] if rest else []))


def _some(names: Sequence[str], verbose: bool) -> str:
    """Return the first names, and how many others there are."""
    named = names if verbose else names[:MANY]
    return ", ".join([*named, *([f"{len(names) - len(named)} others"] if len(names) > len(named) else [])])


def _size(report: ConversionReport) -> str:
    share = f" ({report.size / report.source_size:.2f} of the source)" if report.source_size else ""
    return _bytes(report.size) + share


def _bytes(count: int | None) -> str:
    size = float(count or 0)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
