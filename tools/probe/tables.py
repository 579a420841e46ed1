"""Writes kernel tables into schemas/tflite_ops.toml; everything else in the file stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def rewrite(file: Path, tables: Mapping[str, str]) -> None:
    """Put each op's kernel table behind the op's own entry, in place of the one that is there."""
    parts = re.split(r"^(?=\[)", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    kept = []
    for part in parts:
        name = part[1 : part.find("]")] if part.startswith("[") else ""
        if name.removesuffix(".kernels") in tables and name.endswith(".kernels"):
            continue
        kept.append(part)
        if name in tables:
            kept.append(f"[{name}.kernels]\n{tables[name]}\n")
    file.write_text("".join(kept), encoding="utf-8")
