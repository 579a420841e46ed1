"""The report of a check as JSON, for scripts and CI.

The keys are the fields of `CheckReport` and of its parts::

    {"version": 1, "status": "passed" | "failed" | "not checked", "reason": "", "a": path, "b": path,
     "inputs": [{"name", "dtype", "shape", "values", "note", "ok", "moved"}],
     "outputs": [{"name", "ok", "dtype", "shape", "max_abs", "max_rel", "message", "note", "step", "steps", ...}],
     "notes": [...], "runtimes": [...], "rtol", "atol", "seed", "runs", "seconds", "first_difference": null | {...},
     "float16": [{"precision", "outputs", "beyond", "source_beyond", "note"}]}

Keys are only added; `VERSION` increases when the meaning of a key changes. Floats that JSON lacks are the strings
"nan", "inf" and "-inf".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

VERSION = 1


def to_json(report: object, a: str = "", b: str = "") -> dict[str, Any]:
    """The `CheckReport` of a check of the models at the paths ``a`` and ``b``."""
    return {"version": VERSION, "a": a, "b": b, "first_difference": None, **plain(report)}


def plain(value: Any) -> Any:
    """The value in the types of JSON: dataclasses and mappings are objects, arrays and sequences are lists."""
    if is_dataclass(value) and not isinstance(value, type):
        return {spec.name: plain(getattr(value, spec.name)) for spec in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
