"""Run models in a child process (`tools.probe.child`); crashes and hangs are results."""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tools.probe.child import GREETING, pack, unpack

Array = np.ndarray[Any, Any]
Status = Literal["ran", "placed", "refused", "abort", "timeout"]
KERNELS = ("xnnpack", "builtin", "reference")
ONLY = "kernels"
"""The name of the kernel set of a runtime that has only one."""
_SECONDS = 20.0


class Runtime:
    """The TFLite runtime of the Python interpreter `python`, in a child process that is restarted after a crash.

    `kernels`: its kernel sets. `child`: the script that runs models in it.
    """

    def __init__(self, python: str, kernels: tuple[str, ...] = KERNELS, child: str = "child.py") -> None:
        self.python, self.kernels, self._child = python, kernels, Path(__file__).with_name(child)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, kernels: str, model: bytes, inputs: list[Array]) -> tuple[Status, Any]:
        """The status of a run, with the outputs ("ran") or a message."""
        process = self._started()
        assert process.stdin and process.stdout
        expired = threading.Event()
        timer = threading.Timer(_SECONDS, _end, (process, expired))
        timer.start()
        try:
            pickle.dump((kernels, model, [pack(array) for array in inputs]), process.stdin, protocol=4)
            process.stdin.flush()
            kind, answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.close()
            return ("timeout", "no answer") if expired.is_set() else ("abort", f"exit code {process.returncode}")
        finally:
            timer.cancel()
        return (kind, [unpack(packed) for packed in answer]) if kind == "ran" else (kind, answer)

    def close(self) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                [self.python, str(self._child)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **quiet},
            )
            if self._process.stdout is None or self._process.stdout.readline() != GREETING:
                raise RuntimeError(f"{self.python} has no TFLite runtime")
        return self._process


def _end(process: subprocess.Popen[bytes], expired: threading.Event) -> None:
    expired.set()
    process.kill()
