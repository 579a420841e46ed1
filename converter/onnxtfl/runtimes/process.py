"""The parent's side of `worker`: a child process, which is replaced if it crashes or hangs.

NumPy is imported where arrays are sent: a process starts before.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from onnxtfl import temporary
from onnxtfl.errors import one_line
from onnxtfl.runtimes.run_errors import RunError, brief

Value = Any  # a NumPy array, None, or a list of these
SCRIPT = Path(__file__).resolve().with_name("worker.py")
MARK = "onnxtfl-answer "
"""The prefix of each answer."""
STDERR_TAIL = 4000
GRACE = 0.5
"""Seconds to wait for an unneeded answer; a new process takes as long to start."""
POLL = 1.0
"""Seconds between two checks whether the process is alive."""
PATIENCE = 5.0
"""Seconds for a process to end that closed its output: it is killed then."""
_DEFAULTS = {"OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1", "ORT_QMOE_CPU_QNBIT_GEMM": "0"}
"""NumPy would start a thread for each core, which costs as much as all other imports; the runtimes have their own.

ONNX Runtime 1.31 would leave a file of its telemetry in the folder of temporary files. Its experts (QMoE) with 8-bit
weights in blocks would round the tokens to int8, which changes their result by 1 %, and may swap experts of the next
layer.
"""
LARGE = 64 << 20
"""From this size in bytes on, the session of a model is closed after a run, and its weights are not packed."""
SHORT = 4096
"""The most characters of a request that fits into the pipe to a process that does not read it."""


def stored_bytes(model: str | os.PathLike[str]) -> int:
    """The size of a model file in bytes, with files next to it that may be its external data."""
    path, data = Path(model), 0
    if path.suffix.lower() == ".onnx":
        beside = [entry for entry in os.scandir(path.parent) if entry.name.startswith(path.stem) and entry.is_file()]
        data = sum(e.stat().st_size for e in beside if Path(e.name).suffix.lower() not in (".onnx", ".tflite"))
    return path.stat().st_size + data


@dataclass(frozen=True)
class RunOptions:
    """How to run a model.

    ``kernels``: "default" (LiteRT: XNNPACK), "builtin" (optimized kernels, no delegate) or "reference"; for ONNX
    Runtime all except "default" turn graph optimizations off. ``time_limit``: seconds for loading and one run.
    ``spare``: the runs after the first are skipped if that took more than these seconds; 0: never. ``keep``: the model
    stays loaded for the next run; a .tflite then keeps its state too.
    """

    kernels: str = "default"
    time_limit: float = 300.0
    spare: float = 0.0
    keep: bool = False


DEFAULT = RunOptions()


def environment() -> dict[str, str]:
    """The environment variables of a process that runs models."""
    return {**_DEFAULTS, **os.environ}


class Worker:
    """A child process for one runtime, which runs any number of models; restarted after a crash or time-out.

    Use it as a context manager, in one thread. ``python``: the interpreter to run the worker with. Requests are
    answered one after the other, in order; several may be under way (`submit`, `load`).
    ``is_source``: whether it runs the source of a conversion, of which ONNX Runtime computes what the file says: by
    default it rounds real values to int8 where these are multiplied by int8 weights (MatMulNBits).
    """

    def __init__(self, runtime: str, python: str) -> None:
        self.runtime = runtime
        self.python = python
        self.is_source = False
        self._files: temporary.Folder | None = None
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._reader: threading.Thread | None = None
        self._stderr: Path | None = None
        self._numbers = itertools.count()
        self._sent: dict[int, float] = {}  # requests without an answer, in order, and their time limits
        self._replies: dict[int, dict[str, Any] | RunError] = {}
        self._since = 0.0  # when the first of `_sent` began

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the process unless it runs. `run` does that too; an early start gives it time to import its runtime."""
        if self._process is not None and self._process.poll() is None:
            return
        while self._sent:  # answers that arrived before the process ended
            self._receive()
        self._stop()
        self._stderr = self._new_file("stderr")
        self._answers = queue.Queue()
        try:
            with self._stderr.open("wb") as stderr:
                self._process = subprocess.Popen(
                    [self.python, os.fspath(SCRIPT), self.runtime, MARK, *temporary.places()],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    encoding="utf-8",
                    env=environment(),
                )
        except OSError as error:
            raise RunError("unavailable", f"cannot start {self.python}: {error.strerror or error}") from error
        self._reader = threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True)
        self._reader.start()

    def run(self, model: str | os.PathLike[str], inputs: Sequence[Value], options: RunOptions = DEFAULT) -> list[Value]:
        """Run ``model`` on ``inputs``, in the model's order. Returns the outputs in the model's order.

        Types that NumPy lacks are ml_dtypes arrays on both sides. Raises `RunError`.
        """
        return self.run_steps(model, [inputs], options)[0]

    def run_steps(
        self,
        model: str | os.PathLike[str],
        steps: Sequence[Sequence[Value]],
        options: RunOptions = DEFAULT,
        feedback: Sequence[tuple[int, int]] = (),
    ) -> list[list[Value]]:
        """Run ``model`` on the inputs of each step in turn, without reset. Returns the outputs of each step.

        ``feedback``: pairs of output and input; from the second step on the input is the output of the step before.
        """
        return self.submit(model, steps, options, feedback).result()

    def submit(
        self,
        model: str | os.PathLike[str],
        steps: Sequence[Sequence[Value]],
        options: RunOptions = DEFAULT,
        feedback: Sequence[tuple[int, int]] = (),
    ) -> Run:
        """Begin `run_steps` and return immediately; `Run.result` waits. Raises `RunError` if no process starts."""
        import numpy as np

        from onnxtfl.runtimes.worker import encode

        arrays, results = self._new_file("in.npz"), self._new_file("out.npz")
        store: dict[str, Any] = {}
        items = {id(value): encode(value, store) for value in _distinct(steps)}
        request = self._request(
            model,
            options,
            arrays=os.fspath(arrays),
            runs=[[items[id(value)] for value in inputs] for inputs in steps],
            feedback=list(feedback),
            results=os.fspath(results),
            spare=options.spare,
            keep=options.keep,
        )
        np.savez(arrays, **store)
        return Run(self, self._send(request, options.time_limit * len(steps)), (arrays, results))

    def load(self, model: str | os.PathLike[str], options: RunOptions = DEFAULT) -> None:
        """Start loading ``model`` for the next run with these options; errors are reported by that run."""
        with contextlib.suppress(RunError):
            self._send(self._request(model, options, load=True), options.time_limit)

    def verify(self, model: str | os.PathLike[str], options: RunOptions = DEFAULT) -> None:
        """Load ``model`` without a run. Raises `RunError` if the runtime refuses it."""
        self._ask(model, options, load=True)

    def arena(self, model: str | os.PathLike[str], size: int, options: RunOptions = DEFAULT) -> int:
        """The bytes that ``model`` uses of an arena of ``size`` bytes in TFLite Micro, 0: large enough."""
        return int(self._ask(model, options, arena=size)["arena"])

    def generate(
        self, model: str | os.PathLike[str], plan: dict[str, Any], options: RunOptions = DEFAULT
    ) -> tuple[list[int], Value]:
        """Decode tokens by a language model as ``plan`` says (see `generation_script`).

        Returns the token of the largest logit and the logits, float32 [steps, vocabulary], of each step. Raises
        `RunError`.
        """
        import numpy as np

        results = self._new_file("out.npz")
        try:
            tokens = self._ask(model, options, plan=plan, results=os.fspath(results))["tokens"]
            with np.load(results, allow_pickle=False) as found:
                return tokens, found["logits"]
        finally:
            results.unlink(missing_ok=True)

    def texts(
        self, model: str | os.PathLike[str], asked: dict[str, Any], options: RunOptions = DEFAULT
    ) -> dict[str, Any]:
        """Let LiteRT-LM's engine continue texts, or decode tokens to texts (see `engine_script`). Raises `RunError`."""
        return self._ask(model, options, texts=asked)

    def _ask(self, model: str | os.PathLike[str], options: RunOptions, **asked: Any) -> dict[str, Any]:
        return self._answer(self._send(self._request(model, options, **asked), options.time_limit))

    def _request(self, model: str | os.PathLike[str], options: RunOptions, **asked: Any) -> dict[str, Any]:
        request: dict[str, Any] = {"runtime": self.runtime, "model": os.path.abspath(model), "kernels": options.kernels}
        with contextlib.suppress(OSError):  # loading reports the error
            request["large"] = stored_bytes(model) > LARGE
        return request | {"source": self.is_source} | asked

    def close(self) -> None:
        """End the process and remove its files."""
        self._stop()
        if self._files is not None:
            self._files.close()
            self._files = None

    def _new_file(self, name: str) -> Path:
        """Return an unused path in a directory of this worker."""
        if self._files is None:
            self._files = temporary.Folder()
        return self._files.path / f"{next(self._numbers)}-{name}"

    def _send(self, request: dict[str, Any], time_limit: float) -> int:
        """Send a request and return its number."""
        number = next(self._numbers)
        line = json.dumps(request | {"id": number, "time_limit": time_limit}) + "\n"
        while self._sent and len(line) > SHORT:
            self._receive()
        self.start()
        assert self._process is not None and self._process.stdin is not None
        if not self._sent:
            self._since = time.monotonic()
        self._sent[number] = time_limit
        with contextlib.suppress(OSError):  # a dead child is found later, with its last words
            self._process.stdin.write(line)
            self._process.stdin.flush()
        return number

    def _answer(self, number: int, time_limit: float | None = None) -> dict[str, Any]:
        """Wait for the answer to a request, at most ``time_limit`` seconds (None: unlimited). Raises `RunError`."""
        if number in self._sent and time_limit is not None:
            self._sent[number] = min(self._sent[number], time_limit)
        while number not in self._replies:
            self._receive()
        reply = self._replies.pop(number)
        if isinstance(reply, RunError):
            raise reply
        return reply

    def _receive(self) -> None:
        """Wait for the answer to the first request; if none comes, all requests have failed."""
        limit = next(iter(self._sent.values()))
        try:
            line = self._next_line(self._since + limit)
        except queue.Empty:
            self._stop()
            return self._lost(RunError("timeout", f"{self.runtime} took more than {limit:g} s"))
        if line is None:
            return self._lost(RunError("crash", self._last_words()))
        reply = json.loads(line)
        self._since = time.monotonic()
        self._sent.pop(reply["id"], None)
        failed = "error" in reply
        found = RunError(reply["kind"], f"{self.runtime}: {brief(reply['error'])}") if failed else reply
        self._replies[reply["id"]] = found
        return None

    def _next_line(self, until: float) -> str | None:
        """The next answer; None if the process has ended. Raises `queue.Empty` at the time `until`.

        The end of the process is not only seen from its pipe: a process that this one forked meanwhile may hold that.
        """
        while True:
            ended = self._process is None or self._process.poll() is not None
            left = until - time.monotonic()
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=max(0.0, min(left, POLL)))
            if ended:
                return None
            if left <= POLL:
                raise queue.Empty

    def _lost(self, error: RunError) -> None:
        """Answer all requests with an error: the process has ended."""
        self._replies.update(dict.fromkeys(self._sent, error))
        self._sent.clear()

    def _cancel(self, number: int) -> None:
        """Cancel a request. If the process does not answer soon, it is killed, with all other requests."""
        if number in self._sent:
            soon = time.monotonic() - self._since + GRACE
            self._sent = {sent: min(limit, soon) for sent, limit in self._sent.items()}
            with contextlib.suppress(RunError):
                self._answer(number)
        self._replies.pop(number, None)

    def _last_words(self) -> str:
        """Describe how the process died, with its last output."""
        code, tail = self._stop(PATIENCE), self._stderr_tail()
        return one_line(f"{self.runtime} crashed ({_exit_text(code)}){': ' + tail if tail else ''}", 500)

    def _stderr_tail(self) -> str:
        assert self._stderr is not None
        with self._stderr.open("rb") as stderr:
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - STDERR_TAIL))
            lines = stderr.read().decode("utf-8", "replace").splitlines()
        telling = [line for line in lines if line.strip() and not line.startswith(("INFO:", "WARNING:", "***"))]
        return " ".join(telling[-3:])

    def _stop(self, patience: float = 0.0) -> int:
        """End the process, after ``patience`` seconds by force, and return its exit code."""
        process = self._process
        if process is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        process.kill()
        if self._reader is not None:
            self._reader.join(POLL)  # it closes stdout, which another process may hold open
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        code = process.wait()
        self._process = None
        return code


class Run:
    """Runs of a model that have begun. ``seconds``: for loading and running, once `result` has returned."""

    def __init__(self, worker: Worker, number: int, paths: tuple[Path, Path]) -> None:
        self.seconds = 0.0
        self._worker, self._number, self._paths = worker, number, paths

    def result(self, time_limit: float | None = None) -> list[list[Value]]:
        """Wait for the outputs of each step (of fewer if steps were skipped). Raises `RunError`.

        ``time_limit``: less seconds than the options say. May be called once.
        """
        import numpy as np

        from onnxtfl.runtimes.worker import decode

        try:
            reply = self._worker._answer(self._number, time_limit)
            self.seconds = reply["seconds"]
            with np.load(self._paths[1], allow_pickle=False) as found:
                return [[_named_type(decode(i, found), i) for i in items] for items in reply["outputs"]]
        finally:
            self.forget()

    def cancel(self) -> None:
        """End the runs; their result is not needed."""
        self._worker._cancel(self._number)
        self.forget()

    def forget(self) -> None:
        """Remove the files."""
        for path in self._paths:
            path.unlink(missing_ok=True)


def _distinct(steps: Sequence[Sequence[Value]]) -> list[Value]:
    """The distinct objects among the values of all steps."""
    return list({id(value): value for inputs in steps for value in inputs}.values())


def _pump(stream: IO[str], answers: queue.Queue[str | None]) -> None:
    """Move the child's answers into a queue, since only a queue can be waited for with a time limit on every system."""
    with contextlib.suppress(ValueError, OSError), stream:
        for line in stream:
            if line.startswith(MARK):
                answers.put(line.removeprefix(MARK))
    answers.put(None)


def _exit_text(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


_OTHER_NAMES = {"float4e2m1fn": "float4e2m1", "float8e8m0fnu": "float8e8m0"}
"""Names of ml_dtypes, without underscores, to those of ONNX where they differ."""


def _named_type(value: Value, item: dict[str, Any]) -> Value:
    """`value`, the bits of a type that NumPy lacks as an array of its ml_dtypes type."""
    raw = item.get("raw") or item.get("dtype")
    if not raw:
        return value
    from onnxtfl.ir.dtypes import DType

    return value.view(DType(_OTHER_NAMES.get(raw, raw)).numpy)
