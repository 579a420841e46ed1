"""The child process of the probe for TFLite Micro: like :mod:`child`, with the tflite-micro of this Python.

The interpreter reports missing ops on standard error only; `onnxtfl.runtimes.micro_script` reads them from there.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

# The modules in the folder of this script must not hide those that the runtime imports.
if __name__ == "__main__" and sys.path:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tools.probe.child import pack, serve, unpack

from onnxtfl.runtimes.captured import FailedRunError
from onnxtfl.runtimes.micro_script import Interpreter


def run(model: bytes, inputs: list[Any]) -> tuple[str, Any]:
    """Run a model once."""
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(model)
        file.flush()
        try:
            interpreter = Interpreter(file.name)
            return "ran", [pack(array) for array in interpreter.run([unpack(packed) for packed in inputs])]
        except FailedRunError as error:
            return "refused", str(error)


def main() -> None:
    """Serve requests with tflite-micro, which has one kernel set."""
    serve(lambda: lambda _, model, inputs: run(model, inputs))


if __name__ == "__main__":
    main()
