"""The options that the commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click import ParamType
else:

    class ParamType(click.ParamType):
        """Click's own, which takes type parameters from 8.4 on only."""

        def __class_getitem__(cls, _: object) -> type:
            return cls


F = TypeVar("F", bound=Callable[..., Any])
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


Sizes = tuple[int | str | None, ...]


class InputShape(ParamType[tuple[str, Sizes]]):
    """``NAME:1,3,224,224``; ``?`` is a size that is open, a word one that is called so; the name may contain colons."""

    name = "NAME:SIZES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Sizes]:
        """Return (name, sizes); None is a size that is open."""
        name, colon, sizes = str(value).rpartition(":")
        words = [word.strip() for word in sizes.split(",")] if sizes else []
        if not colon or not name or not all(re.fullmatch(r"\?|-1|0*[1-9]\d*|[A-Za-z_]\w*", word) for word in words):
            self.fail(f"{value!r} is not NAME:SIZES, like x:1,3,224,224 or x:?,3,224,224", param, ctx)
        return name, tuple(_size(word) for word in words)


def _size(word: str) -> int | str | None:
    if word in ("?", "-1"):
        return None
    return int(word) if word.isdecimal() else word


class InputRange(ParamType[tuple[str, tuple[float, float]]]):
    """``NAME:LOW,HIGH``; the name may contain colons."""

    name = "NAME:LOW,HIGH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[float, float]]:
        """Return (name, (lowest, highest value))."""
        name, colon, numbers = str(value).rpartition(":")
        try:
            low, high = map(float, numbers.split(","))
        except ValueError:
            low, high = 1.0, 0.0
        if not colon or not name or not low <= high:
            self.fail(f"{value!r} is not NAME:LOW,HIGH, like x:-1,1", param, ctx)
        return name, (low, high)


class Elements(ParamType[tuple[str, "int | None"]]):
    """``NAME:3``, or ``NAME:none``; the name may contain colons."""

    name = "NAME:COUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int | None]:
        """Return (name, number of elements, None for "none")."""
        name, colon, count = str(value).rpartition(":")
        if not colon or not name or not (count == "none" or (count.isascii() and count.isdecimal())):
            self.fail(f"{value!r} is not NAME:COUNT, like x:3, nor NAME:none", param, ctx)
        return name, None if count == "none" else int(count)


class Layout(ParamType[tuple[str, str]]):
    """``LAYOUT`` of all inputs and outputs, or ``NAME:LAYOUT`` of one; the name may contain colons."""

    name = "[NAME:]LAYOUT"
    known = ("source", "channels-first", "channels-last")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return (name, layout); the name "*" is all inputs and outputs that are not named."""
        name, colon, layout = str(value).rpartition(":")
        if layout not in self.known or (colon and not name):
            self.fail(f"{value!r} is not one of {', '.join(self.known)}, nor NAME: and one of these", param, ctx)
        return name or "*", layout


class Entry(ParamType[tuple[str, str]]):
    """``KEY=VALUE``; the value may contain equals signs."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Return (key, value)."""
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not KEY=VALUE, like author=me", param, ctx)
        return key, text


def setting(name: str, default: Any, help_: str, type_: Any = None) -> Callable[[F], F]:
    """An option with a value, whose default is shown."""
    return click.option(name, type=type_, default=default, show_default=True, help=help_)


class _ModelPath(click.Path):
    """The path of a model, which is not empty (as that of a variable that is not set)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not value:
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


MODEL = _ModelPath(readable=False)


class Whole(click.IntRange):
    """An integer that is not below a limit."""

    name = "n"


class Number(click.FloatRange):
    """A number of at least 0, or above 0."""

    name = "number"


_POSITIVE, _NOT_NEGATIVE = Number(min=0, min_open=True), Number(min=0)
_SHAPES: dict[str, Any] = {
    "type": InputShape(),
    "multiple": True,
    "help": "Sizes of an input, like x:1,3,224,224; x:?,3,64,64 or x:batch,3,64,64 leaves one open (repeatable).",
}
_REPORT_HELP = "Write a page with errors along the depth, time per op and what was changed."
_RANGE_HELP = "Lowest and highest value of an input, like x:-1,1 (repeatable)."
_CHECKING = (
    setting("--rtol", 1e-3, "Relative tolerance.", _NOT_NEGATIVE),
    setting("--atol", 1e-4, "Absolute tolerance, relative to an output's largest value.", _NOT_NEGATIVE),
    setting("--seed", 0, "Seed of the inputs.", Whole(min=0)),
    setting("--time-limit", 300.0, "Seconds for each run of a model, and for the conversion.", _POSITIVE),
    setting("--steps", 3, "Runs, one after the other, of models with state.", Whole(min=1)),
    click.option("--input-range", "input_ranges", type=InputRange(), multiple=True, help=_RANGE_HELP),
    click.option("--runtime", type=click.Choice(["litert", "tflite-runtime", "micro"]), help="What runs a .tflite."),
    click.option("--per-layer", is_flag=True, help="Find the first op whose result differs."),
    click.option("--report", metavar="OUT.html", type=click.Path(dir_okay=False), help=_REPORT_HELP),
    click.option("--input-shape", "input_shapes", **_SHAPES),
)
_FLOAT64 = click.Choice(["narrow", "error"])
_LAYOUT_HELP = (
    "Axis order of the image inputs and outputs, or of one of them: source, channels-first or channels-last "
    "(repeatable).  [default: source]"
)
_TYPES = click.Choice(["source", "float", "int8", "uint8"])
_CHECK_HELP = "Compare both models; --check also fails where one of them cannot be run.  [default: compare]"
_LOAD_HELP = "Load the result in its runtime before it is written, also without a check.  [default: load]"
_RECORD_HELP = "Write into the result which tensors hold which of the source.  [default: record]"
_OUTPUT_HELP = "File to write, or folder for several models; '-': standard output.  [default: next to MODEL]"
_CONVERTING = (
    click.argument("models", type=MODEL, metavar="MODEL...", nargs=-1, required=True),
    click.option("-o", "--output", type=click.Path(), metavar="OUT", help=_OUTPUT_HELP),
    click.option("--io-layout", type=Layout(), multiple=True, help=_LAYOUT_HELP),
    setting("--quantized-io", "source", "Type of the inputs and outputs that are quantized.", _TYPES),
    setting("--float64", "narrow", "Compute float64 in float32, or fail.", _FLOAT64),
    setting("--min-runtime", "2.14", "Oldest TFLite runtime that must run the result."),
    setting("--max-memory", 1024.0, "Megabytes of constants that the conversion may compute.", _NOT_NEGATIVE),
    click.option("--metadata", type=Entry(), multiple=True, help="Add to the result's metadata (repeatable)."),
    click.option("--check/--no-check", "check_", default=None, help=_CHECK_HELP),
    click.option("--load/--no-load", default=True, help=_LOAD_HELP),
    click.option("--record/--no-record", default=True, help=_RECORD_HELP),
    click.option("--list-unsupported", is_flag=True, help="List all ops that have no conversion; convert nothing."),
    click.option("--json", "as_json", is_flag=True, help="With --list-unsupported: print JSON."),
    click.option("--allow-custom", is_flag=True, help="Keep ops without a conversion, for kernels of your own."),
    click.option("--plugin", "plugins", multiple=True, metavar="MODULE", help="Load rules of your own (repeatable)."),
    click.option("--keep-failed", is_flag=True, help="Write the result also where the check fails."),
)
_PARTS = (
    click.option("--inputs", multiple=True, metavar="NAME...", help="Begin the model at these tensors (a b, or a,b)."),
    click.option("--outputs", multiple=True, metavar="NAME...", help="End the model at these tensors (a b, or a,b)."),
)
_SCHEDULING = (
    click.option("--jobs", type=Whole(min=1), help="Worker processes.  [default: half the processors]"),
    click.option("--force", is_flag=True, help="Convert also what is up to date."),
    setting(
        "--executor", "processes", "Where they run: here, or on a Dask cluster.", click.Choice(["processes", "dask"])
    ),
    click.option("--scheduler", "address", metavar="ADDRESS", help="Address of the Dask scheduler (onnxtfl[dask])."),
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
verbose = click.option("-v", "--verbose", is_flag=True, help="Print more.")


def checking(command: F) -> F:
    """Add the options of a comparison."""
    for option in reversed(_CHECKING):
        command = option(command)
    return command


def converting(command: F) -> F:
    """Add the options that both converters have."""
    for option in reversed((*_CONVERTING, *_PARTS, quiet, verbose, *_CHECKING, *_SCHEDULING)):
        command = option(command)
    return command


def sequences(command: F) -> F:
    """Add the option that says how long the sequences among the inputs are."""
    help_ = "Number of elements of an input that is a sequence; NAME:none is an optional without a value (repeatable)."
    return click.option("--elements", type=Elements(), multiple=True, help=help_)(command)


def shaping(command: F) -> F:
    """Add the options for sizes, sequences and parts, of a command that compares nothing."""
    for option in reversed((click.option("--input-shape", "input_shapes", **_SHAPES), sequences, *_PARTS)):
        command = option(command)
    return command


def names(words: Sequence[str]) -> list[str] | None:
    """Return the names in ``a b`` or ``a,b``; a comma in a name is written ``\\,``."""
    found = [name for word in words for name in re.split(r"(?<!\\),", word)]
    return [name.replace("\\,", ",").strip() for name in found if name] or None


def quantizing(command: F) -> F:
    """Add the options that make a quantized model."""
    modes = click.Choice(["dynamic", "int8", "int16x8", "float16"])
    data = "Samples for int8 and int16x8: an .npz file, a directory of them, or 'random'."
    command = click.option("--calibration", metavar="DATA", help=data)(command)
    return click.option("--quantize", type=modes, help="Quantize the result (needs onnxtfl[quantize]).")(command)
