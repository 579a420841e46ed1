"""Writes measured tables to the files of schemas/; the rest of a file is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def rewrite(file: Path, tables: Mapping[str, str], kind: str = "kernels") -> None:
    """Replace each op's table of a kind, or add it after the op's other tables."""
    parts = re.split(r"^(?=\[)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = [part for part in parts if not (_name(part).endswith(f".{kind}") and _op(part) in tables)]
    ops = [_op(part) for part in kept]
    written = []
    for i, part in enumerate(kept):
        written.append(part)
        if tables.get(ops[i]) and ops[i] not in ops[i + 1 :]:
            written.append(f"[{ops[i]}.{kind}]\n{tables[ops[i]]}\n")
    file.write_text("".join(written).rstrip() + "\n", encoding="utf-8")


def _name(part: str) -> str:
    """The name of a section, "" for the head of the file."""
    return part[1 : part.find("]")] if part.startswith("[") else ""


def _op(part: str) -> str:
    return _name(part).partition(".")[0]


def rows_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of costs in TOML."""
    return "rows = [\n" + "".join(f"  {{ {_row(row)} }},\n" for row in rows) + "]\n"


def _row(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_literal(value)}" for name, value in row.items())


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else f'"{value}"'
