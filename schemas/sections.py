"""The files of this folder by section: parsing all of tflite_ops.toml takes 25 ms, a section of it 0.1 ms."""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from typing import Any

OPS, MICRO = "tflite_ops.toml", "tflite_micro.toml"


@functools.cache
def names(file: str = OPS) -> tuple[str, ...]:
    """The names of all ops of a file, in its order."""
    return tuple(name for name in texts(file) if "." not in name)


def section(name: str, file: str = OPS) -> dict[str, Any]:
    """The contents of a section ("ADD", "ADD.kernels"), empty where there is none."""
    return tomllib.loads(texts(file).get(name, ""))


@functools.cache
def texts(file: str) -> dict[str, str]:
    """The text of each section of a file, by name."""
    text = importlib.resources.files("onnxtfl.schemas").joinpath(file).read_text(encoding="utf-8")
    parts = re.split(r"^\[([A-Za-z0-9_.]+)\]$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
