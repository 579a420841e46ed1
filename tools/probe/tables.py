"""Write measured tables to the files of schemas/; the rest of a file is unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def rewrite(file: Path, tables: Mapping[str, str], kind: str = "kernels") -> None:
    """Replace the table of this kind of each op, or add it after the op's other tables."""
    parts = re.split(r"^(?=\[)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    ops = [_op(part) for part in parts]
    last = {op: i for i, op in enumerate(ops)}
    placed = {_op(part): i for i, part in enumerate(parts) if _name(part).endswith(f".{kind}")}
    for op, text in tables.items():
        made = f"[{op}.{kind}]\n{text}\n" if text else ""
        if op in placed:
            parts[placed[op]] = made
        elif op in last:
            parts[last[op]] += made if parts[last[op]].endswith("\n\n") else "\n" + made
    file.write_text("".join(parts).rstrip() + "\n", encoding="utf-8")


def _name(part: str) -> str:
    """The name of a section; "" for the part before the first one."""
    return part[1 : part.find("]")] if part.startswith("[") else ""


def _op(part: str) -> str:
    return _name(part).partition(".")[0]


def rows_text(rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """Lists of rows of costs in TOML."""
    return "".join(f"{name} = [\n{_lines(each)}]\n" for name, each in rows.items())


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(f"  {{ {_row(row)} }},\n" for row in rows)


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_literal(value)}" for name, value in row.items())


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else f'"{value}"'
