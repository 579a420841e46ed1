"""The tables at the end: what a conversion did and what a check found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from onnxtfl import CheckReport, Conversion, ConversionReport, TensorReport

MANY = 8  # operators to name before the rest is summed up
COLOURS = {"passed": "green", "failed": "red", "not checked": "yellow"}


def show_conversion(model: str, output: str, conversion: Conversion, verbose: bool) -> None:
    """Print what a conversion did; ``output`` is where it was to be written."""
    report = conversion.report
    table = _grid()
    table.add_row("model", Text(f"{model} -> {output}" if conversion.path else f"{model} (nothing written)"))
    _add_all(table, "inputs", [_tensor(spec) for spec in report.inputs])
    _add_all(table, "outputs", [_tensor(spec) for spec in report.outputs])
    table.add_row("ops before", Text(_ops(report.ops_before, verbose)))
    table.add_row("ops after", Text(_ops(report.ops_after, verbose)))
    table.add_row("size", Text(_size(report)))
    memory = f", peak memory {_bytes(report.peak_memory)}" if report.peak_memory else ""
    table.add_row("time", Text(f"{report.seconds:.2f} s{memory}"))
    if conversion.check is not None:
        _add_check(table, conversion.check, verbose)
    _print(table)


def show_check(a: str, b: str, report: CheckReport, verbose: bool) -> None:
    """Print what a check found."""
    table = _grid()
    table.add_row("models", Text(f"{a} and {b}"))
    _add_check(table, report, verbose)
    _print(table)


def _add_check(table: Table, report: CheckReport, verbose: bool) -> None:
    verdict = Text(report.status, style=COLOURS[report.status])
    if report.status == "not checked":
        verdict.append(f": {report.reason}", style="default")
    elif report.runtimes:
        verdict.append(f" ({', '.join(report.runtimes)}; {report.seconds:.2f} s)", style="default")
    table.add_row("check", verdict)
    for spec in report.inputs:
        if verbose or spec.note:
            words = f"{spec.name}  {spec.dtype} {_shape(spec.shape)}: {spec.values}" if verbose else spec.name
            table.add_row("", Text(f"{words}{'; ' if verbose and spec.note else '  '}{spec.note}".rstrip()))
    for out in report.outputs:
        line = Text(out.name)
        if out.max_abs is not None:
            line.append(f"  largest error {out.max_abs:.3g} absolute, {out.max_rel:.3g} relative")
        if out.message:
            line.append(f"  {out.message}", style="red")
        if out.note:
            line.append(f"  ({out.note})")
        table.add_row("", line)
    for note in report.notes:
        table.add_row("", Text(note))


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _print(table: Table) -> None:
    """Print to stdout; what is not a terminal gets its lines unbroken and without blanks at their ends."""
    console = Console(highlight=False)
    if console.is_terminal:
        console.print(table)
        return
    wide = Console(highlight=False, width=10_000)
    with wide.capture() as captured:
        wide.print(table)
    for line in captured.get().splitlines():
        console.file.write(line.rstrip() + "\n")


def _add_all(table: Table, title: str, lines: Iterable[str]) -> None:
    for k, line in enumerate(lines):
        table.add_row("" if k else title, Text(line))


def _tensor(spec: TensorReport) -> str:
    return f"{spec.name}  {spec.dtype} {_shape(spec.shape)}"


def _shape(shape: Iterable[object]) -> str:
    return "[" + ",".join(str(dim) for dim in shape) + "]"


def _ops(counts: Mapping[str, int], verbose: bool) -> str:
    """Return the sum and the most frequent operators."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = ranked if verbose else ranked[:MANY]
    rest = sum(count for _, count in ranked[len(named) :])
    parts = [f"{count} {name}" for name, count in named] + ([f"{rest} others"] if rest else [])
    return f"{sum(counts.values())}: {', '.join(parts)}" if parts else "0"


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
