"""Elements of the HTML page: tables that can be sorted and filtered, cards, bars, and a plot. All text is escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onnxtfl.tables import printable

MAX_ROWS = 4000
"""The largest number of rows of a table; a note says how many there are more."""
FILTERED = 12
"""The number of rows from which a table has a field to filter it."""


def text(value: object) -> str:
    """The text of `value`, escaped, without control characters."""
    return html.escape(printable(str(value)))


class Markup(str):
    """HTML that is escaped already."""

    __slots__ = ()


_CLASSES = {"#": " class=number", "=": " class=bars"}


class Cell(NamedTuple):
    """The content of a cell: `value` is shown (escaped unless it is Markup), `key` is what the column is sorted by."""

    value: object
    key: float | None = None
    style: str = ""


def number(value: float | None, form: str = ".3g", style: str = "") -> Cell:
    """A cell with a number, sorted by it; a dash for None."""
    if value is None:
        return Cell("–", math.nan, style)
    return Cell(format(value, form) if math.isfinite(value) else str(value), value, style)


def name(value: object) -> Markup:
    """The name of a tensor or op."""
    return Markup(f'<span class="name">{text(value)}</span>')


def _shown(value: object) -> str:
    return value if isinstance(value, Markup) else text(value)


@dataclass
class Table:
    """A table with an `id` of its own; the columns of which the title begins with "#" hold numbers, with "=" bars.

    `stack`: on narrow screens each row is a block. `marked`: the indices of highlighted rows.
    """

    id: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    stack: bool = True
    marked: frozenset[int] = frozenset()

    def markup(self) -> Markup:
        """The table, with a field to filter it where it is long."""
        titles = [title.lstrip("#=") for title in self.columns]
        numeric = [title.startswith("#") for title in self.columns]
        head = "".join(
            f'<th scope="col"{_CLASSES.get(column[:1], "")}><button type="button">{text(title)}</button></th>'
            for column, title in zip(self.columns, titles, strict=True)
        )
        shown = self.rows[:MAX_ROWS]
        body = "".join(self._row(k, row, titles, numeric) for k, row in enumerate(shown))
        style = "sortable stack" if self.stack else "sortable"
        table = f'<table id="{self.id}" class="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        more = f'<p class="soft small">The first {MAX_ROWS} of {len(self.rows)} rows.</p>'
        return Markup(
            f'{self._tools(len(shown))}<div class="scroll">{table}</div>{more if len(self.rows) > MAX_ROWS else ""}'
        )

    def _tools(self, count: int) -> str:
        if count < FILTERED:
            return ""
        return (
            f'<div class="tools"><input type="search" placeholder="Filter" aria-label="Filter" data-table="{self.id}">'
            f'<span class="soft small" id="{self.id}-count">{count} rows</span></div>'
        )

    def _row(self, k: int, row: Sequence[object], titles: Sequence[str], numeric: Sequence[bool]) -> str:
        cells = "".join(
            self._cell(value if isinstance(value, Cell) else Cell(value), title, is_number)
            for value, title, is_number in zip(row, titles, numeric, strict=True)
        )
        return f"<tr{' class=mark' if k in self.marked else ''}>{cells}</tr>"

    def _cell(self, cell: Cell, title: str, is_number: bool) -> str:
        style = " ".join(part for part in ("number" if is_number else "", cell.style) if part)
        style = f' class="{style}"' if style else ""
        key = "" if cell.key is None else f' data-v="{cell.key:.9g}"'
        label = f' data-label="{text(title)}"' if self.stack else ""
        return f"<td{style}{key}{label}>{_shown(cell.value)}</td>"


def card(title: str, value: object, note: object = "") -> Markup:
    """A figure with its title and a note."""
    return Markup(
        f'<div class="card"><span>{text(title)}</span><b>{_shown(value)}</b><span>{_shown(note)}</span></div>'
    )


def section(id_: str, title: str, *parts: str) -> Markup:
    """A section of the page; "" where it has no content."""
    content = "".join(parts)
    return Markup(f'<section id="{id_}"><h2>{text(title)}</h2>{content}</section>' if content else "")


def details(title: str, *parts: str) -> Markup:
    """Content that a click shows."""
    return Markup(f"<details><summary>{text(title)}</summary>{''.join(parts)}</details>")


def paragraph(content: object, style: str = "") -> Markup:
    """A paragraph."""
    head = f'<p class="{style}">' if style else "<p>"
    return Markup(f"{head}{_shown(content)}</p>")


def items(lines: Iterable[object]) -> Markup:
    """A list; "" without lines."""
    content = "".join(f"<li>{_shown(line)}</li>" for line in lines)
    return Markup(f"<ul>{content}</ul>" if content else "")


def bar(share: float, style: str = "") -> Markup:
    """A bar whose length is a share of 120 pixels."""
    width = 120 * min(1.0, max(0.0, share))
    return Markup(f'<span class="bar {style}" style="width:{width:.0f}px"></span>')


def track(share: float) -> Markup:
    """A bar of the full width of which a share is filled."""
    return Markup(f'<div class="track"><i style="width:{100 * min(1.0, max(0.0, share)):.1f}%"></i></div>')


class Point(NamedTuple):
    """A point of the plot: its error (inf is at the top), that of the op alone (None: unknown), and its description."""

    error: float
    own: float | None
    label: str


WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 1000, 280, 52, 26, 14
FLOOR, CEILING, MANY = 1e-9, 10.0, 1500


def plot(points: Sequence[Point], limit: float, marked: int | None) -> Markup:
    """Errors along the depth, on a logarithmic scale, with a line at `limit`; `marked`: the index of a point."""
    errors = [e for p in points for e in (p.error, p.own) if e is not None and 0 < e < math.inf]
    low = max(min([*errors, limit]), FLOOR)
    bottom = 10.0 ** math.floor(math.log10(low))
    top = 10.0 ** math.ceil(math.log10(min(max([*errors, limit, bottom * 10]), CEILING)) - 1e-9)
    scale = _Scale(len(points), bottom, top)
    steps = range(round(math.log10(bottom)), round(math.log10(top)) + 1)
    stride = max(1, math.ceil(len(steps) / 7))
    lines = [_grid(scale, exponent) for exponent in steps if exponent % stride == 0]
    lines.append(f'<line class="limit" x1="{LEFT}" x2="{WIDTH}" y1="{scale.y(limit)}" y2="{scale.y(limit)}"/>')
    if marked is not None:
        x = scale.x(marked)
        lines.append(f'<line class="mark" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    kept = sorted(_kept(points) | ({marked} if marked is not None else set()))
    path = " ".join(f"{scale.x(k)},{scale.y(points[k].error)}" for k in kept)
    dots = "".join(_dots(scale, k, points[k], limit) for k in kept)
    axis = f'<text x="{LEFT}" y="{HEIGHT - 6}">inputs</text>'
    axis += f'<text x="{WIDTH}" y="{HEIGHT - 6}" text-anchor="end">outputs</text>'
    return Markup(
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Error along the depth">'
        f'{"".join(lines)}<polyline class="line" points="{path}"/>{dots}{axis}</svg></div>'
    )


class _Scale(NamedTuple):
    points: int
    bottom: float
    top: float

    def x(self, k: int) -> str:
        return f"{LEFT + 8 + (WIDTH - LEFT - 16) * k / max(1, self.points - 1):.1f}"

    def y(self, error: float) -> str:
        bounded = self.top if math.isnan(error) else min(max(error, self.bottom), self.top)
        share = math.log10(bounded / self.bottom) / math.log10(self.top / self.bottom)
        return f"{HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share:.1f}"


def _grid(scale: _Scale, exponent: int) -> str:
    y = scale.y(10.0**exponent)
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y}" y2="{y}"/>'
    return f'{line}<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">1e{exponent}</text>'


def _kept(points: Sequence[Point]) -> set[int]:
    """The indices of the points that are drawn: of many, the largest error of each part."""
    step = max(1, math.ceil(len(points) / MANY))
    parts = (range(start, min(start + step, len(points))) for start in range(0, len(points), step))
    return {max(part, key=lambda k: points[k].error) for part in parts}


def _dots(scale: _Scale, k: int, point: Point, limit: float) -> str:
    title = f"<title>{text(point.label)}</title>"
    style = "dot" if point.error <= limit else "over"
    dots = f'<circle class="{style}" cx="{scale.x(k)}" cy="{scale.y(point.error)}" r="3">{title}</circle>'
    if point.own is None:
        return dots
    return f'{dots}<circle class="own" cx="{scale.x(k)}" cy="{scale.y(point.own)}" r="2">{title}</circle>'
