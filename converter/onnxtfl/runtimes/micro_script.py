"""TFLite Micro in the child process: part of `worker`.

The interpreter reports what is wrong on stderr only, so this is read from there. Its memory, the arena, is doubled
until the model fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from onnxtfl.runtimes.captured import FailedRunError, stderr_lines

ARENAS = tuple(1 << k for k in range(18, 30))
"""Sizes of the arena in bytes: 256 KB to 512 MB."""
TOO_SMALL = ("Failed to allocate", "Unable to allocate", "missing:", "Too many buffers", "Requested buffer size")
"""Messages of the interpreter for an arena that is too small, also for the planner's data."""


class Interpreter:
    """A model in TFLite Micro, in the first of the `arenas` that it fits into; raises `FailedRunError`."""

    def __init__(self, path: str, arenas: Sequence[int] = ARENAS) -> None:
        try:
            from tflite_micro.python.tflite_micro import runtime
        except (ImportError, OSError) as error:
            raise FailedRunError("unavailable", f"tflite-micro cannot be imported: {error}") from error
        with open(path, "rb") as file:
            data = file.read()
        for arena in (size for size in arenas if len(arenas) == 1 or size >= len(data) // 16):
            said: list[str] = []
            try:
                with stderr_lines(said):
                    self._interpreter = runtime.Interpreter.from_bytes(data, arena_size=arena)
                return
            except (RuntimeError, ValueError) as error:
                if not any(text in line for line in said for text in TOO_SMALL):
                    raise failure(error, said, "load") from error
        raise FailedRunError("memory", f"the model does not fit into an arena of {arenas[-1] >> 20} MB")

    def allocated(self) -> int:
        """Return the bytes of the arena in use."""
        said: list[str] = []
        with stderr_lines(said):
            self._interpreter.print_allocations()
        found = re.search(r"Arena allocation total (\d+) bytes", " ".join(said))
        if found is None:
            raise FailedRunError("run", "TFLite Micro did not report its allocation")
        return int(found[1])

    def run(self, inputs: list[Any]) -> list[Any]:
        """Return the outputs of one run."""
        said: list[str] = []
        try:
            with stderr_lines(said):
                for index, value in enumerate(inputs):
                    self._interpreter.set_input(value, index)
                self._interpreter.invoke()
                return list(self._outputs())
        except (RuntimeError, ValueError, IndexError) as error:
            raise failure(error, said, "run") from error

    def _outputs(self) -> Iterator[Any]:
        index = 0
        while True:
            try:
                self._interpreter.get_output_details(index)
            except IndexError:
                return
            yield self._interpreter.get_output(index)
            index += 1


def arena(path: str, size: int = 0) -> int:
    """Return the bytes of the arena in use; ``size``: of the arena, 0: large enough."""
    return Interpreter(path, [size] if size else ARENAS).allocated()


def failure(error: Exception, said: list[str], kind: str) -> FailedRunError:
    """Return the error for messages of the interpreter; a missing op is "unsupported"."""
    text = " ".join(said)
    missing = re.search(r"Didn't find (?:custom )?op for (?:builtin opcode|name) '([^']+)'", text)
    if missing:
        return FailedRunError("unsupported", f"TFLite Micro has no op {missing[1]}")
    if "Dimension mismatch" in str(error):
        return FailedRunError("unsupported", f"TFLite Micro runs the sizes of the file only: {error}")
    told = text or str(error)
    unsupported = re.search(r"not (?:currently )?supported|unsupported", told, re.IGNORECASE)
    return FailedRunError("unsupported" if unsupported else kind, told)
