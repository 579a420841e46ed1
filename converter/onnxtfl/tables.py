"""Tables of facts: rows of a title and a text, as text for terminals and as HTML for notebooks.

Reports define their rows; the formatting of numbers and lists is defined here.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from onnxtfl.wording import Interface, worded

WIDTH = 80
MANY = 8  # names in a list, before the rest is one count
FEW = 4  # kinds that are named rather than counted
_COLOURS = {"green": 32, "red": 31, "yellow": 33}


class Row(NamedTuple):
    """A line of a table: title ("": that of the line above), text, and its colour ("green", "red", "yellow" or "")."""

    title: str
    text: str
    style: str = ""


def as_text(rows: Iterable[Row], width: int = WIDTH, color: bool = False, interface: Interface = "python") -> str:
    """The table with a line end after each line, wrapped at spaces to ``width`` columns.

    ``color``: with the escape sequences of terminals. ``interface``: in whose words parameters are written. Control
    characters in names become "?".
    """
    lines = [row._replace(text=worded(row.text, interface)) for row in rows]
    indent = max((len(row.title) for row in lines), default=0) + 2
    return "".join(line + "\n" for row in lines for line in _lines(row, indent, width, color))


def _lines(row: Row, indent: int, width: int, color: bool) -> list[str]:
    text = printable(row.text)
    parts = textwrap.wrap(
        text, max(width - indent, 20), break_long_words=False, break_on_hyphens=False, subsequent_indent="  "
    )
    titles = [row.title, *[""] * len(parts)]
    style = _COLOURS.get(row.style) if color else None
    shown = [part if style is None else f"\x1b[{style}m{part}\x1b[0m" for part in parts or [""]]
    return [
        (_bold(f"{title:{indent}}") if color and title else f"{title:{indent}}") + part
        for title, part in zip(titles, shown, strict=False)
    ]


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def as_html(rows: Iterable[Row]) -> str:
    """The table for a notebook."""
    import html

    cells = [
        f'<tr><th style="text-align:left;vertical-align:top">{html.escape(row.title)}</th>'
        f'<td style="text-align:left{";color:" + row.style if row.style in ("green", "red") else ""}">'
        f"{html.escape(printable(worded(row.text, 'python')))}</td></tr>"
        for row in rows
    ]
    return f"<table>{''.join(cells)}</table>"


def printable(text: str) -> str:
    """``text`` without control characters, which the names in a file may contain."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def titled(title: str, lines: Iterable[str], style: str = "") -> list[Row]:
    """A row for each line, of which the first has the title."""
    return [Row("" if k else title, line, style) for k, line in enumerate(lines)]


def some(names: Sequence[str], verbose: bool = False) -> str:
    """The first names, and the number of the others: at least two, since a single name is as short as its count."""
    named = names if verbose or len(names) <= MANY + 1 else names[:MANY]
    return ", ".join([*named, *([f"and {len(names) - len(named)} more"] if len(names) > len(named) else [])])


def ranked(counts: Mapping[str, int], verbose: bool = False) -> str:
    """The names with their counts, the most frequent ones first, and the rest, like "and 63 more (19 kinds)"."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = order if verbose or len(order) <= MANY + FEW else order[:MANY]
    rest = order[len(named) :]
    more = f"and {sum(count for _, count in rest)} more ({len(rest)} kinds)"
    return ", ".join([*(f"{count} {name}" for name, count in named), *([more] if rest else [])])


def shape(sizes: Iterable[object]) -> str:
    """A shape as text, like [1,3,224,224]."""
    return "[" + ",".join(str(size) for size in sizes) + "]"


def counted(count: int, noun: str) -> str:
    """A number of things, like "1 op" or "2 ops"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def byte_count(count: int | None) -> str:
    """A number of bytes in B, kB, MB or GB (powers of 1000)."""
    size = float(count or 0)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
