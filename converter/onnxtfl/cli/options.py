"""The options that the commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class InputShape(click.ParamType[tuple[str, tuple[int, ...]]]):
    """``NAME:1,3,224,224``; the name may contain colons."""

    name = "NAME:SIZES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        """Return (name, sizes)."""
        name, colon, sizes = str(value).rpartition(":")
        try:
            shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
        except ValueError:
            shape = (-2,)
        if not colon or not name or any(size < 1 for size in shape):
            self.fail(f"{value!r} is not NAME:SIZES, like x:1,3,224,224", param, ctx)
        return name, shape


def checking(command: F) -> F:
    """Add the options of a comparison."""
    for option in reversed(
        (
            click.option(
                "--rtol", type=click.FloatRange(min=0), default=1e-3, show_default=True, help="Relative tolerance."
            ),
            click.option(
                "--atol",
                type=click.FloatRange(min=0),
                default=1e-4,
                show_default=True,
                help="Absolute tolerance, relative to an output's largest value.",
            ),
            click.option(
                "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the inputs."
            ),
            click.option(
                "--time-limit",
                type=click.FloatRange(min=0, min_open=True),
                default=300.0,
                show_default=True,
                help="Seconds for each run of a model.",
            ),
            click.option(
                "--input-shape",
                "input_shapes",
                type=InputShape(),
                multiple=True,
                help="Sizes of an input, like x:1,3,224,224 (repeatable).",
            ),
        )
    ):
        command = option(command)
    return command


def converting(command: F) -> F:
    """Add the options that both converters have."""
    command = checking(command)
    for option in reversed(
        (
            click.argument("model", type=click.Path(readable=False), metavar="MODEL"),
            click.option(
                "-o", "--output", type=click.Path(), metavar="OUT", help="File to write.  [default: next to MODEL]"
            ),
            click.option(
                "--io-layout",
                type=click.Choice(["source", "channels-last"]),
                default="source",
                show_default=True,
                help="Axis order of the inputs and outputs.",
            ),
            click.option(
                "--float64",
                type=click.Choice(["narrow", "error"]),
                default="narrow",
                show_default=True,
                help="Compute float64 in float32, or fail.",
            ),
            click.option(
                "--min-runtime",
                default="2.14",
                show_default=True,
                help="Oldest TFLite runtime that must run the result.",
            ),
            click.option("--inputs", multiple=True, metavar="NAME...", help="Begin the model at these tensors."),
            click.option("--outputs", multiple=True, metavar="NAME...", help="End the model at these tensors."),
            click.option(
                "--check/--no-check",
                "check_",
                default=None,
                help="Compare both models; --check also fails where one of them cannot be run.  [default: compare]",
            ),
            click.option("--keep-failed", is_flag=True, help="Write the result also where the check fails."),
            click.option("-v", "--verbose", is_flag=True, help="Print more."),
        )
    ):
        command = option(command)
    return command
