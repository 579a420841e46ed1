"""`onnx2tfl --llm`: decoders as models of LiteRT-LM."""

from __future__ import annotations

import os
from typing import Any

import click

from onnxtfl.cli.options import keywords
from onnxtfl.option_table import LLM, TO_TFLITE, options_of

_ALWAYS = {"llm", "models", "output", "quiet", "verbose", "metadata"}


def refuse_unused(options: dict[str, Any], is_llm: bool) -> None:
    """Raise UsageError for an option of the command line that has no effect with, or without, --llm."""
    from onnxtfl.errors import UsageError

    context = click.get_current_context()
    given = {name for name in options if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE}
    used = {row.name for row in options_of(LLM if is_llm else TO_TFLITE)} | _ALWAYS
    for row in options_of(TO_TFLITE, "many", LLM):
        if row.name in given - used and (is_llm or row.commands == (LLM,)):
            how = "has no effect with --llm" if is_llm else "is for --llm"
            raise UsageError(f"{row.flag} {how}", hint="leave it out", code="E-USE-006")


def convert_decoder(models: tuple[str, ...], output: str | None, quiet: bool, options: dict[str, Any]) -> int:
    """Convert one decoder, show what was done, and return the exit code."""
    from onnxtfl import llm
    from onnxtfl.cli.many import is_several
    from onnxtfl.cli.progress import progress
    from onnxtfl.cli.streams import STREAM, is_stdout, model_of
    from onnxtfl.cli.tables import show
    from onnxtfl.errors import CheckFailedError, UsageError
    from onnxtfl.output import beside
    from onnxtfl.tables import Row

    if is_several(models):
        raise UsageError("--llm is for one model", hint="convert them one by one", code="E-USE-006")
    (model,) = models
    if (output is None and model == STREAM) or is_stdout(output or ""):
        raise UsageError("--llm writes a file", hint="name it with -o FILE.litertlm", code="E-USE-006")
    target = output or beside(model, ".litertlm")
    failure: CheckFailedError | None = None
    with progress(quiet) as step:
        try:
            found = llm.convert(model_of(model), target, on_progress=step, **keywords(LLM, options))
        except CheckFailedError as error:
            failure, found = error, error.conversion
    if not quiet:
        written = "(nothing written)" if found.path is None else f"-> {os.fspath(found.path)}"
        show([Row("model", f"{model} {written}"), *found.rows(options["verbose"])])
    if failure is not None:
        raise failure
    return 0
