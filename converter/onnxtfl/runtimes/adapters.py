"""The runtimes: ONNX Runtime for .onnx; LiteRT and tflite-runtime for .tflite. Importing this imports none of them."""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from onnxtfl.errors import RuntimeUnavailableError
from onnxtfl.runtimes.process import Worker
from onnxtfl.runtimes.run_errors import RunError

TFLITE_RUNTIME_PYTHON = "ONNXTFL_TFLITE_RUNTIME_PYTHON"


@dataclass(frozen=True)
class Runtime:
    """A runtime: ``name``, the model ``format`` that it runs ("onnx" or "tflite"), its distribution, and the package
    that is imported.

    ``special``: it is used only if it is requested by name. ``install``: what pip installs. ``is_fixed``: it runs
    the sizes that are in the file only, on one set of kernels. ``has_arena``: it plans memory once, in an arena.
    """

    name: str
    format: str
    distribution: str
    package: str
    find_python: Callable[[], str] = lambda: sys.executable
    special: bool = False
    install: str = ""
    is_fixed: bool = False
    has_arena: bool = False

    def version(self) -> str | None:
        """Return the installed version; None if the runtime is not installed. Imports nothing."""
        return _version(self.distribution, self.find_python())

    def available(self) -> bool:
        """Whether the runtime is installed. Imports nothing."""
        python = self.find_python()
        return _is_installed(self.package) if python == sys.executable else self.version() is not None

    def worker(self) -> Worker:
        """Return a child process (not started yet) that runs models one after the other; close it after use.

        Raises `RunError` (kind "unavailable") if the runtime is not installed.
        """
        if not self.available():
            raise RunError(
                "unavailable", f"{self.distribution} is not installed (pip install {self.install or self.distribution})"
            )
        return Worker(self.name, self.find_python())


def tflite_runtime_python() -> str:
    """Return the interpreter that has tflite-runtime: that of ONNXTFL_TFLITE_RUNTIME_PYTHON, or this one."""
    return os.environ.get(TFLITE_RUNTIME_PYTHON) or sys.executable


def _is_installed(package: str) -> bool:
    """Whether a package is installed; a folder without modules (an incomplete removal) does not count."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


@functools.cache
def _version(distribution: str, python: str) -> str | None:
    if python == sys.executable:
        import importlib.metadata  # takes as long as a process needs to start

        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return None
    query = f"import importlib.metadata as m; print(m.version({distribution!r}))"
    try:
        done = subprocess.run([python, "-c", query], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


ONNXRUNTIME = Runtime("onnxruntime", "onnx", "onnxruntime", "onnxruntime")
LITERT = Runtime("litert", "tflite", "ai-edge-litert", "ai_edge_litert")
TFLITE_RUNTIME = Runtime("tflite_runtime", "tflite", "tflite-runtime", "tflite_runtime", tflite_runtime_python)
MICRO = Runtime(
    *("micro", "tflite", "tflite-micro", "tflite_micro"),
    special=True,
    install="'onnxtfl[micro]'",
    is_fixed=True,
    has_arena=True,
)
GPU = Runtime("gpu", "tflite", "ai-edge-litert", "ai_edge_litert", special=True, is_fixed=True)
"""LiteRT's GPU accelerator, on the GPU alone; only a run shows whether there is a driver."""
REFERENCE = Runtime("reference", "onnx", "onnx", "onnx", special=True)
NEUTRAL = Runtime("neutral", "ir", "onnxtfl", "onnxtfl")
"""The neutral ops in NumPy; it runs models of the other formats too, where it is asked for."""
ENGINE = Runtime("litert_lm", "litertlm", "litert-lm-api", "litert_lm", special=True, install="'onnxtfl[llm]'")
"""LiteRT-LM's engine, which runs a .litertlm with texts as inputs and outputs; it is none of `RUNTIMES`."""
RUNTIMES = {runtime.name: runtime for runtime in (ONNXRUNTIME, LITERT, TFLITE_RUNTIME, MICRO, GPU, REFERENCE, NEUTRAL)}


def is_fixed(name: str | None) -> bool:
    """Whether the runtime of this name runs the sizes that are in the file only."""
    return name is not None and RUNTIMES[name.replace("-", "_")].is_fixed


def runtime_for(format_: str, name: str | None) -> Runtime:
    """Return the runtime that runs ``format_`` ("onnx" or "tflite"): the first installed one.

    ``name``: the one for .tflite models, installed or not. Raises `RuntimeUnavailableError` if there is none.
    """
    candidates = [runtime for runtime in RUNTIMES.values() if runtime.format == format_ and not runtime.special]
    if name is not None and format_ == "tflite":
        return RUNTIMES[name.replace("-", "_")]
    for runtime in candidates:
        if runtime.available():
            return runtime
    names = " or ".join(runtime.distribution for runtime in candidates)
    raise RuntimeUnavailableError(f"no runtime for .{format_} models is installed", hint=f"pip install {names}")
