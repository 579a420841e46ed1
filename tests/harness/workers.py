"""Worker processes that may crash or hang without ending the test run.

A `Worker` runs jobs in one child process, one after the other; a child that crashes or exceeds the time limit is
replaced for the next job. `run_all` distributes jobs over several workers.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Outcome:
    """How a job ended: ``kind`` is "done", "raised", "crashed" or "timeout".

    ``value``: the function's result ("done" only). ``message``: one line for the other kinds. ``detail``: the
    traceback, or the end of the child's output. ``stage``: the last stage that the job sent.
    """

    kind: str
    value: Any = None
    message: str = ""
    detail: str = ""
    stage: str = ""


class Worker:
    """One persistent child process; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child."""
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if self._log:
            self._log.close()
        self._process = self._log = None

    def run(self, function: str, argument: Any, timeout: float) -> Outcome:
        """Run ``function`` ("module:name") on ``argument`` in the child, for at most ``timeout`` seconds."""
        process = self._start()
        expired = threading.Event()
        timer = threading.Timer(timeout, _kill, (process, expired))
        timer.start()
        try:
            return self._exchange(process, function, argument, expired, timeout)
        finally:
            timer.cancel()

    def _exchange(
        self, process: subprocess.Popen[bytes], function: str, argument: Any, expired: threading.Event, timeout: float
    ) -> Outcome:
        assert process.stdin and process.stdout
        stage = ""
        try:
            pickle.dump((function, argument), process.stdin, protocol=pickle.HIGHEST_PROTOCOL)
            process.stdin.flush()
            while True:
                kind, *rest = pickle.load(process.stdout)
                if kind == "done":
                    return Outcome("done", value=rest[0], stage=stage)
                if kind == "raised":
                    return Outcome("raised", message=rest[0], detail=rest[1], stage=stage)
                stage = rest[0]
        except (EOFError, OSError):
            return self._died(process, stage, expired.is_set(), timeout)
        except Exception as error:  # an argument or a result that cannot be pickled, or not in this process
            self.close()  # what it still sends would be taken for the next result
            return Outcome("crashed", message=f"{type(error).__name__}: {error}", stage=stage)

    def _died(self, process: subprocess.Popen[bytes], stage: str, expired: bool, timeout: float) -> Outcome:
        process.kill()
        code = process.wait()
        tail = self._log_tail()
        self.close()
        if expired:
            return Outcome("timeout", message=f"no result after {timeout:g} s", detail=tail, stage=stage)
        return Outcome("crashed", message=_exit_reason(code), detail=tail, stage=stage)

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process and self._process.poll() is None:
            return self._process
        self.close()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.harness.child import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, **_ONE_THREAD, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore"},
        )
        return self._process

    def _log_tail(self, size: int = 2000) -> str:
        if not self._log:
            return ""
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, end - size))
        return self._log.read().decode(errors="replace")


def _kill(process: subprocess.Popen[bytes], expired: threading.Event) -> None:
    expired.set()
    process.kill()


def run_all(function: str, arguments: Iterable[Any], timeout: float, jobs: int = 1) -> Iterator[tuple[Any, Outcome]]:
    """Run ``function`` on each argument, in ``jobs`` workers; yields (argument, outcome) in order of completion."""
    todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Any, Outcome]] = queue.SimpleQueue()
    count = 0
    for argument in arguments:
        todo.put(argument)
        count += 1
    for _ in range(min(jobs, count)):
        threading.Thread(target=_serve, args=(function, todo, done, timeout), daemon=True).start()
    for _ in range(count):
        yield done.get()


def _serve(function: str, todo: queue.SimpleQueue[Any], done: queue.SimpleQueue[Any], timeout: float) -> None:
    with Worker() as worker:
        while True:
            try:
                argument = todo.get_nowait()
            except queue.Empty:
                return
            done.put((argument, _outcome(worker, function, argument, timeout)))


def _outcome(worker: Worker, function: str, argument: Any, timeout: float) -> Outcome:
    """The outcome of a job, also if an exception is raised: `run_all` waits for the outcome of each."""
    try:
        return worker.run(function, argument, timeout)
    except Exception as error:  # no process or thread starts
        return Outcome("crashed", message=f"{type(error).__name__}: {error}")


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process was ended by signal {-code}"
