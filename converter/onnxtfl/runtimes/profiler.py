"""Time per op, measured by the runtimes in a child process, which may crash or hang."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.errors import one_line
from onnxtfl.runtimes import profiler_script as script
from onnxtfl.runtimes.adapters import Runtime
from onnxtfl.runtimes.process import environment
from onnxtfl.runtimes.worker import encode
from onnxtfl.temporary import Folder, places


def profile(
    runtime: Runtime,
    model: str | os.PathLike[str],
    inputs: Sequence[Any],
    time_limit: float = 60.0,
    *,
    ops: bool = True,
) -> dict[str, Any]:
    """The profile of ``model`` in `runtime`, on ``inputs`` in the model's order.

    ``{"ops": [[name, op, milliseconds]], "milliseconds", "note", "delegate", "delegated", "total", "partitions",
    "replaced"}``; where it cannot be measured ``note`` says why, and keys are missing. ``replaced``: the places of the
    ops in the file that the delegate computes. ``ops``: whether those of a .tflite are measured.
    """
    if runtime.name not in ("onnxruntime", "litert", "tflite_runtime"):
        return {"note": f"{runtime.name} has no profiler in its Python package"}
    with Folder() as folder:
        store: dict[str, Any] = {}
        items = [encode(value, store) for value in inputs]
        arrays = folder / "in.npz"
        np.savez(arrays, **store)
        request: dict[str, Any] = {"runtime": runtime.name, "model": os.path.abspath(model), "arrays": str(arrays)}
        request |= {"items": items, "places": places(), "ops": ops}
        return _measured(runtime, request, time_limit)


def _measured(runtime: Runtime, request: dict[str, Any], time_limit: float) -> dict[str, Any]:
    """The last answer of the child process."""
    command = [runtime.find_python(), script.__file__, json.dumps(request)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=time_limit, check=False, env=environment())
    except subprocess.TimeoutExpired:
        return {"note": f"not measured: it takes more than {time_limit:g} s"}
    except OSError as error:
        return {"note": f"not measured: {error.strerror or error}"}
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    answers = [line.removeprefix(script.MARK) for line in lines if line.startswith(script.MARK) and line.endswith("}")]
    if not answers:
        return {"note": f"not measured: {runtime.name} crashed while it was profiled"}
    found: dict[str, Any] = json.loads(answers[-1])
    return found if "error" not in found else {"note": one_line(f"not measured: {found['error']}", 300)}
