"""Several runs of one interpreter, with inputs of any sizes, on any runtime and kernel set.

It also runs as a script in the Python that has the runtime, which need not have this project.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_RESOLVERS = {"": "AUTO", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "reference": "BUILTIN_REF"}


def run_again(runtime: str, model: bytes, runs: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    """The outputs of each of `runs`, inputs by name; `runtime` as in :mod:`tests.harness.runtimes`."""
    name, _, kernels = runtime.partition(":")
    from onnxtfl import runtimes

    if name == "litert":
        return _run("ai_edge_litert.interpreter", kernels, model, runs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "request"
        path.write_bytes(pickle.dumps((kernels, model, [dict(r) for r in runs])))
        python = runtimes.TFLITE_RUNTIME.find_python()
        subprocess.run([python, __file__, str(path)], check=True, capture_output=True, timeout=300)
        found: list[list[Array]] = pickle.loads(path.read_bytes())
        return found


def _run(module: str, kernels: str, model: bytes, runs: Sequence[Mapping[str, Array]]) -> list[list[Array]]:
    from importlib import import_module

    found = import_module(module)
    resolver = getattr(found.OpResolverType, _RESOLVERS[kernels])
    interpreter = found.Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    return [_step(interpreter, inputs) for inputs in runs]


def _step(interpreter: Any, inputs: Mapping[str, Array]) -> list[Array]:
    for detail in interpreter.get_input_details():
        if tuple(detail["shape"]) != inputs[detail["name"]].shape:
            interpreter.resize_tensor_input(detail["index"], list(inputs[detail["name"]].shape))
            interpreter.allocate_tensors()
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_bytes(pickle.dumps(_run("tflite_runtime.interpreter", *pickle.loads(file.read_bytes()))))
