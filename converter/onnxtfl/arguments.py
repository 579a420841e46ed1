"""The arguments of the public functions, checked against the table of options before anything is read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from onnxtfl.errors import UsageError
from onnxtfl.kinds import RefusedError, refuse
from onnxtfl.option_table import kind_of, options_of
from onnxtfl.options import Options

P = ParamSpec("P")
R = TypeVar("R")


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
    """Return the options of the conversion in `values`."""
    return Options(**{field.name: values[field.name] for field in fields(Options) if field.name in values})


def settings(command: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the check in `values`, by field of `onnxtfl.checking.Settings`."""
    found = {row.setting: values[row.name] for row in options_of(command) if row.setting and row.name in values}
    for name in ("rtol", "atol"):
        if isinstance(given := found.get(name), Mapping):
            found[name] = given[""][0]
            found[f"output_{name}"] = {output: number for output, (number, _) in given.items() if output}
            if name == "atol":
                found["absolute"] = frozenset(output for output, (_, is_absolute) in given.items() if is_absolute)
    if "accept" in found:
        found["accept"] = None if found["accept"] is None else frozenset(found["accept"])
    return found


def current_names(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return `given` with renamed keywords under their current names, after a warning."""
    names = {row.former: row.name for row in options_of(command) if row.former and row.is_keyword}
    for former in [name for name in given if name in names]:
        warnings.warn(f"`{former}` is now called `{names[former]}`", DeprecationWarning, stacklevel=3)
    twice = next((former for former, name in names.items() if former in given and name in given), None)
    if twice is not None:
        raise UsageError(f"`{names[twice]}` and its former name {twice} are both given", hint="leave out the latter")
    return {names.get(name, name): value for name, value in given.items()}


def accepting_former_names(command: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the public function of a command accept the former names of its keywords."""

    def accepting(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(*args, **current_names(command, kwargs))

        return call

    return accepting


def model_kind(model: Any, name: str, kinds: Sequence[str]) -> None:
    """Raise UsageError unless the argument is a model: a path, bytes, or a proto if that is one of ``kinds``."""
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
