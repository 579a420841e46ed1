"""The options of the commands, generated from the table of options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from onnxtfl.kinds import CheckMode, Choice, File, Flag, Integer, Kind, Number, Place
from onnxtfl.option_table import Option, options_of

if TYPE_CHECKING:
    from click import ParamType
else:

    class ParamType(click.ParamType):
        """Click's class, which has type parameters only from release 8.4 on."""

        def __class_getitem__(cls, _: object) -> type:
            return cls


F = TypeVar("F", bound=Callable[..., Any])
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


class _ModelPath(click.Path):
    """The path of a model, which is not empty (as that of a variable that is not set)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not value:
            self.fail("the path is empty", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except UnicodeEncodeError as error:
            self.fail(f"no file here can have the name {value!a}: file names are {error.encoding}", param, ctx)


MODEL = _ModelPath(readable=False)


class _Integers(click.IntRange):
    """An integer within limits."""

    name = "n"


class _Numbers(click.FloatRange):
    """A number within limits."""

    name = "number"


class _Read(ParamType[Any]):
    """A text in the notation of a kind of values (:mod:`onnxtfl.kinds`)."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.name = kind, kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value."""
        try:
            return self.kind.read(str(value))
        except ValueError as error:
            return self.fail(str(error), param, ctx)


def command_options(*commands: str) -> Callable[[F], F]:
    """Add the options of commands of the table to a command."""

    def add(function: F) -> F:
        for option in reversed(options_of(*commands)):
            function = _click_option(option)(function) if option.words else function
        return function

    return add


def keywords(command: str, values: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a public function among the values of the options of a command."""
    rows = [row for row in options_of(command) if row.is_keyword and row.name in values]
    return {row.name: row.kind.collect(values[row.name]) for row in rows}


def _click_option(option: Option) -> Callable[[F], F]:
    kind = option.kind
    flags = [*option.words, option.name]
    if isinstance(kind, CheckMode):
        return click.option("--check/--no-check", option.name, default=None, help=option.help)
    if isinstance(kind, Flag):
        flags[0] = f"{flags[0]}/--no-{flags[0][2:]}" if option.default else flags[0]
        return click.option(*flags, is_flag=True, default=option.default, help=option.help)
    shown = option.default is not None and not kind.repeatable
    return click.option(
        *flags,
        type=_click_type(kind),
        multiple=kind.repeatable,
        default=option.default if shown else None,
        show_default=shown,
        metavar=option.metavar,
        help=option.help,
    )


def _click_type(kind: Kind) -> ParamType[Any]:
    if isinstance(kind, Choice):
        return click.Choice(kind.words)
    if isinstance(kind, Number):
        return _Numbers(min=kind.least if kind.above is None else kind.above, min_open=kind.above is not None)
    if isinstance(kind, Integer):
        return _Integers(min=kind.least, max=kind.most if kind.optional else None)
    return click.Path(dir_okay=isinstance(kind, Place)) if isinstance(kind, File) else _Read(kind)
