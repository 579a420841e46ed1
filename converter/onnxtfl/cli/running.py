"""Run a command line and return its exit code: errors become one line on stderr, never a traceback."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from onnxtfl.cli import interrupts
from onnxtfl.cli.streams import accept_any_text

LISTS = ("--inputs", "--outputs")  # options that take all the words up to the next option


def run(command: click.Command, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run ``command`` on ``arguments`` (default: those of the process) and end the process with its exit code."""
    gc.disable()
    accept_any_text()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # of NumPy, about values of the model
    words = list(sys.argv[1:] if arguments is None else arguments)
    _complete(command)
    if _has_lists(command, words):
        words = spread_lists(words)
    try:
        interrupts.catch()
        code = exit_code(command, words)
    except KeyboardInterrupt:  # before or after the command itself
        code = _interrupted()
    interrupts.leave_at_once()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    gc.freeze()  # the graphs are needed until the process ends: no collection, not even at its exit
    sys.exit(code)


def _complete(command: click.Command) -> None:
    """If the shell requests completions, print them and exit."""
    variable = f"_{command.name}_COMPLETE".upper()
    if instruction := os.environ.get(variable):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, str(command.name), variable, instruction))


def _has_lists(command: click.Command, words: list[str]) -> bool:
    """Whether the command, or its subcommand, has an option with several names."""
    if isinstance(command, click.Group):
        command = next((command.commands[word] for word in words if word in command.commands), command)
    return any(isinstance(p, click.Option) and p.multiple and p.opts[0] in LISTS for p in command.params)


def exit_code(command: click.Command, words: list[str]) -> int:
    """Run ``command`` and return its exit code; an error is one line on stderr."""
    try:
        with command.make_context(command.name, list(words)) as context:  # click's main() prints several lines
            result = command.invoke(context)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else command.name
        print_error(f"{error.format_message().rstrip('.')} (see {path} --help) (E-USE-001)")
        return 2
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # the reader is gone: avoid the interpreter's message at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if interrupts.was_interrupted():
            return _interrupted()
        return _failed(error, "-v" in words or "--verbose" in words)
    return result if isinstance(result, int) else 0


def _interrupted() -> int:
    if temporary := sys.modules.get(
        "onnxtfl.temporary"
    ):  # the signal may have come while a folder was created or removed
        temporary.remove_all()
    print_error("interrupted")
    return interrupts.EXIT_CODE


def _failed(error: Exception, verbose: bool) -> int:
    from onnxtfl.errors import InternalError, OnnxtflError

    if os.environ.get("ONNXTFL_DEBUG") or (verbose and isinstance(error, InternalError)):
        _show_traceback(error)
    if isinstance(error, OnnxtflError):
        found = error
    elif isinstance(error, MemoryError):
        found = OnnxtflError("out of memory", code="E-RUN-005")
    elif isinstance(error, RecursionError):
        found = OnnxtflError("the model is nested too deeply", code="E-FILE-011")
    elif isinstance(error, OSError) and error.strerror:
        found = OnnxtflError(f"{error.filename or 'a file'}: {error.strerror}", code="E-FILE-001")
    else:
        found = InternalError("the command", error)
        if verbose:
            _show_traceback(error)
    print_error(found.text("cli"))
    return found.exit_code


def _show_traceback(error: Exception) -> None:
    import traceback

    traceback.print_exception(error)


def print_error(message: str) -> None:
    """Write one error line to stderr."""
    with suppress(OSError, ValueError):
        sys.stderr.write(f"error: {message}\n")
        sys.stderr.flush()


def spread_lists(words: list[str]) -> list[str]:
    """Return ``--inputs a b`` as ``--inputs a --inputs b``, which click accepts; a list ends at the next option."""
    spread: list[str] = []
    current = ""
    for k, word in enumerate(words):
        if word == "--":
            return spread + words[k:]
        if word in LISTS:
            current = word
            if k + 1 == len(words) or words[k + 1].startswith("-"):
                spread.append(word)  # click reports the missing value
            continue
        if word.startswith("-"):
            current = ""
        spread.extend([current, word] if current else [word])
    return spread
