"""The processes that run the two models of a check in parallel.

Each imports its runtime and loads its model while this process converts, reads graphs and makes inputs. A large .tflite
has a second process for its second kernel set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from onnxtfl import platform_calls
from onnxtfl.errors import RuntimeUnavailableError
from onnxtfl.runtimes.adapters import Runtime, is_fixed, runtime_for
from onnxtfl.runtimes.process import RunOptions, Worker, stored_bytes
from onnxtfl.tables import byte_count

PathLike = str | os.PathLike[str]
LARGE = 16 << 20
"""From this size in bytes on, a model has a second process for its second kernel set: the time to import the runtime
again is less than the waiting time.
"""
SECOND = "builtin"
"""The kernel set that has a process of its own."""
HELD = 4
"""Bytes that both runtimes may need together, over those of both models."""
ALONE = 1.5
"""Bytes that one runtime needs to load a model, over those of the model: a BERT of 418 MB takes 594 MB in ONNX Runtime,
and 332 MB in LiteRT, which maps the file.
"""


class Workers:
    """``a``, ``b``: the processes of the two models, None if a runtime is missing; ``other``: that of the second kernel
    set of ``b``, mostly the same process. ``problem``: why there is no runtime.

    A context manager. `start` may be called early, and again. ``runtime``: the name of the runtime for .tflite models;
    None for the first installed one.
    """

    def __init__(self, runtime: str | None = None) -> None:
        self.runtime = runtime
        self.a: Worker | None = None
        self.b: Worker | None = None
        self.other: Worker | None = None
        self._used: list[Runtime] = []
        self.problem = ""
        self._stack = ExitStack()
        self._started = False
        self._loaded: set[tuple[int, str, float]] = set()

    @property
    def runtimes(self) -> list[str]:
        """Names and versions of the runtimes that run."""
        return [f"{runtime.name} {runtime.version()}" for runtime in self._used]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; may be called again."""
        self._stack.close()

    def start(self, a: str, b: str, size: int = 0) -> None:
        """Start the processes for models of these formats; ``size``: bytes of the second one, if known."""
        if self._started:
            return
        self._started = True
        self.a, self.b = self._start(a), self._start(b)
        if self.a is not None:
            self.a.is_source = b == "tflite"
        parallel = b == "tflite" and not is_fixed(self.runtime) and size >= LARGE and (os.cpu_count() or 1) > 1
        self.other = self._start(b, again=True) if parallel else self.b

    def _start(self, format_: str, again: bool = False) -> Worker | None:
        try:
            runtime = runtime_for(format_, self.runtime)
            worker = self._stack.enter_context(runtime.worker())
            worker.start()
        except RuntimeUnavailableError as error:
            self.problem = self.problem or str(error)
            return None
        if not again:
            self._used.append(runtime)
        return worker

    def load_a(self, path: PathLike, options: RunOptions) -> None:
        """Begin to load the first model, unless it is already being loaded."""
        self._load(self.a, path, options)

    def load_b(self, path: PathLike, options: RunOptions) -> None:
        """Begin to load the second model, in its second process with the second kernel set."""
        self._load(self.b, path, options)
        if self.other is not self.b:
            self._load(self.other, path, replace(options, kernels=SECOND))

    def _load(self, worker: Worker | None, path: PathLike, options: RunOptions) -> None:
        key = id(worker), os.path.abspath(path), os.path.getmtime(path)
        if worker is not None and key not in self._loaded:
            self._loaded.add(key)
            worker.load(path, options)


def shortage(models: Sequence[PathLike]) -> str:
    """The memory that is missing to load each of `models` in its runtime, one at a time; "" if none is known to be."""
    free = platform_calls.memory_available()
    try:
        largest = max(models, key=stored_bytes)
        needed = round(ALONE * stored_bytes(largest))
    except OSError:
        return ""
    if free is None or needed <= free:
        return ""
    name = Path(largest).name
    return f"loading {name} needs about {byte_count(needed)} of memory, and {byte_count(free)} are available"


def fit_together(models: Sequence[PathLike]) -> bool:
    """Whether there is memory to load all ``models`` in their runtimes at the same time; True if unknown."""
    free = platform_calls.memory_available()
    try:
        return free is None or HELD * sum(map(stored_bytes, models)) < free
    except OSError:
        return True
