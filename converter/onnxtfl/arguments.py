"""The arguments of the public functions, each checked once as the table of options says, before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from onnxtfl.errors import UsageError
from onnxtfl.kinds import RefusedError, Size, refuse
from onnxtfl.option_table import kind_of, options_of
from onnxtfl.options import Options

__all__ = ["Size", "checked", "conversion_options", "model_kind", "of_command", "settings"]


def checked(**given: Any) -> dict[str, Any]:
    """Return the arguments in the form that the package uses. Raises `UsageError` for the first invalid one."""
    with _usage_errors():
        return {name: kind_of(name).check(name, value) for name, value in given.items()}


def of_command(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords among `given` that are options of a command, checked as in `checked`."""
    rows = [row for row in options_of(command) if row.is_keyword and row.name in given]
    with _usage_errors():
        return {row.name: row.kind.check(row.name, given[row.name]) for row in rows}


def conversion_options(values: Mapping[str, Any]) -> Options:
    """What `values` says about the conversion itself."""
    return Options(**{field.name: values[field.name] for field in fields(Options) if field.name in values})


def settings(command: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """What `values` says about the check, by field of `onnxtfl.checking.Settings`."""
    return {row.setting: values[row.name] for row in options_of(command) if row.setting and row.name in values}


def model_kind(model: Any, name: str, kinds: Sequence[str]) -> None:
    """Raise UsageError for what is no model: a path, bytes, or a proto where that is one of ``kinds``."""
    if isinstance(model, bytes | bytearray | memoryview | str | os.PathLike):
        return
    if "an onnx.ModelProto" in kinds and type(model).__name__ == "ModelProto":
        return
    with _usage_errors():
        raise refuse(name, model, " or ".join([", ".join(kinds[:-1]), kinds[-1]]))


@contextmanager
def _usage_errors() -> Iterator[None]:
    """Raise `UsageError` for a value that its kind refuses."""
    try:
        yield
    except RefusedError as refused:
        raise UsageError(refused.message, hint=refused.hint, code=refused.code) from None
