"""Run a TFLite model on any runtime and kernel set.

"litert" is LiteRT with XNNPACK, "litert:builtin" and "litert:reference" are its other kernels; "tflite-runtime" (also
with ":builtin", ":reference") is the older package, in the Python that ONNXTFL_TFLITE_RUNTIME_PYTHON names.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.litert import Array, narrow, run_tflite

DEFAULT = "litert"


def run_tflite_on(runtime: str, model: bytes, inputs: Sequence[Array] | Mapping[str, Array]) -> list[tuple[str, Array]]:
    """As `run_tflite`, on ``runtime``. Raises RuntimeError where the run fails, crashes or hangs."""
    if runtime == DEFAULT:
        return run_tflite(model, inputs)
    from onnxtfl.errors import OnnxtflError
    from onnxtfl.runtimes import RunOptions
    from tests.harness.named import run_named

    name, _, kernels = runtime.partition(":")
    adapter, worker = _worker(name)
    named = {k: narrow(v) for k, v in inputs.items()} if isinstance(inputs, Mapping) else [narrow(v) for v in inputs]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(model)
        try:
            options = RunOptions(kernels=kernels or "default", time_limit=60.0)
            return list(run_named(adapter, path, named, options, worker).items())
        except OnnxtflError as error:
            raise RuntimeError(str(error)) from error


@functools.cache
def _worker(name: str) -> tuple[Any, Any]:
    from onnxtfl import runtimes

    adapter = {"litert": runtimes.LITERT, "tflite-runtime": runtimes.TFLITE_RUNTIME}[name]
    return adapter, adapter.worker()
