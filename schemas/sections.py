"""The files of this folder by section: parsing all of tflite_ops.toml takes 25 ms, a section of it 0.1 ms."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

OPS = "tflite_ops.toml"


@functools.cache
def folder() -> Traversable:
    """The folder of the files, which may be in an archive."""
    here = Path(__file__).parent
    if here.is_dir():
        return here
    import importlib.resources

    return importlib.resources.files("onnxtfl.schemas")


def tables_in(name: str) -> list[str]:
    """The names of the tables in a folder of this one, sorted, without the suffix."""
    found = (file.name.partition(".") for file in folder().joinpath(name).iterdir())
    return sorted(stem for stem, _, suffix in found if suffix == "toml")


@functools.cache
def names(file: str = OPS) -> tuple[str, ...]:
    """The names of all ops of a file, in its order."""
    return tuple(name for name in texts(file) if name.isupper() and "." not in name)


def section(name: str, file: str = OPS) -> dict[str, Any]:
    """The contents of a section ("ADD", "ADD.kernels"), empty where there is none."""
    text = texts(file).get(name)
    return tomllib.loads(text) if text else {}


@functools.cache
def texts(file: str) -> dict[str, str]:
    """The text of each section of a file, by name."""
    text = folder().joinpath(file).read_text(encoding="utf-8")
    parts = re.split(r"^\[([A-Za-z0-9_.]+)\]$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
