"""Elements of the HTML page, made by the macros of elements.html: tables, cards, bars, and a plot."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, ClassVar, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from onnxtfl.tables import printable

MAX_ROWS = 4000
"""The most rows of a table; a note counts the others."""


def file_text(name: str) -> str:
    """The text of a file next to this module."""
    return (resources.files("onnxtfl.reporting") / name).read_text(encoding="utf-8")


def _shown(value: object) -> Any:
    """The output of a template: text without control characters, which Jinja escapes; Markup unchanged."""
    return value if isinstance(value, Markup) else printable(str(value))


@functools.cache
def environment() -> Environment:
    """The environment of the templates."""
    return Environment(
        loader=FunctionLoader(file_text),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@functools.cache
def macros() -> Any:
    """The macros of elements.html, as functions that return Markup."""
    return environment().get_template("elements.html").module


class Cell(NamedTuple):
    """The content of a cell: `value` is shown (escaped unless it is Markup), `key` is the sort key."""

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
    return Markup(macros().name(value))


class _Column(NamedTuple):
    title: str
    number: str  # the class of its cells
    attribute: Markup  # of its head


@dataclass
class Table:
    """A table with an `id` of its own; columns whose title begins with "#" have numbers, those with "=" bars.

    `stack`: on narrow screens each row is a block. `marked`: the indices of highlighted rows.
    """

    id: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    stack: bool = True
    marked: frozenset[int] = frozenset()
    FILTERED: ClassVar = 12
    """The number of rows from which a table has a field to filter it."""

    @functools.cached_property
    def heads(self) -> list[_Column]:
        """The columns."""
        styles = {"#": "number", "=": "bars"}
        return [
            _Column(
                title.lstrip("#="),
                "number" if title.startswith("#") else "",
                Markup(' class="{}"').format(styles[title[0]]) if title[:1] in styles else Markup(),
            )
            for title in self.columns
        ]

    @property
    def shown(self) -> Sequence[Sequence[object]]:
        """The rows that are in the page."""
        return self.rows[:MAX_ROWS]

    def cells(self, row: Sequence[object]) -> list[tuple[Cell, _Column]]:
        """The cells of a row with their columns."""
        cells = (value if isinstance(value, Cell) else Cell(value) for value in row)
        return list(zip(cells, self.heads, strict=True))

    def markup(self) -> Markup:
        """The table, with a field to filter it if it is long."""
        return Markup(macros().table(self))


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
    grid = [(exponent, scale.y(10.0**exponent)) for exponent in steps if exponent % stride == 0]
    kept = sorted(_kept(points) | ({marked} if marked is not None else set()))
    drawn = {
        **{"width": WIDTH, "height": HEIGHT, "left": LEFT, "top": TOP, "bottom": HEIGHT - BOTTOM},
        "grid": [{"exponent": exponent, "y": y, "text_y": f"{float(y) + 4:.1f}"} for exponent, y in grid],
        "limit": scale.y(limit),
        "marked": None if marked is None else scale.x(marked),
        "dots": [_dot(scale, k, points[k], limit) for k in kept],
    }
    return Markup(macros().plot(drawn))


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


def _kept(points: Sequence[Point]) -> set[int]:
    """The indices of the points that are drawn: of many, the largest error of each part."""
    step = max(1, math.ceil(len(points) / MANY))
    parts = (range(start, min(start + step, len(points))) for start in range(0, len(points), step))
    return {max(part, key=lambda k: points[k].error) for part in parts}


def _dot(scale: _Scale, k: int, point: Point, limit: float) -> dict[str, object]:
    return {
        "x": scale.x(k),
        "y": scale.y(point.error),
        "own": None if point.own is None else scale.y(point.own),
        "style": "dot" if point.error <= limit else "over",
        "label": point.label,
    }
