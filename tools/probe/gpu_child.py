"""The child process of the probe for LiteRT's GPU accelerator: like :mod:`child`, on the GPU alone."""

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
from onnxtfl.runtimes.gpu_script import Model


def run(model: bytes, inputs: list[Any]) -> tuple[str, Any]:
    """Run a model once."""
    with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
        file.write(model)
        file.flush()
        try:
            return "ran", [pack(array) for array in Model(file.name).run([unpack(packed) for packed in inputs])]
        except FailedRunError as error:
            if error.kind == "unavailable":
                raise
            return "refused", str(error)


def main() -> None:
    """Serve requests with the accelerator, which has one kernel set."""
    serve(lambda: lambda _, model, inputs: run(model, inputs))


if __name__ == "__main__":
    main()
