"""The child process of the probe for XNNPACK: like :mod:`child`, it says whether LiteRT's delegate computes an op."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

# The modules in the folder of this script must not hide those that the runtime imports.
if __name__ == "__main__" and sys.path:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tools.probe.child import load, run, serve

from onnxtfl.runtimes.profiler_script import delegation


def main() -> None:
    """Serve requests with the LiteRT of this Python: "ran" only if no op is left to the builtin kernels."""

    def start() -> Any:
        opener, resolvers = load()

        def answer(_: str, model: bytes, inputs: list[Any]) -> tuple[str, Any]:
            status, result = run(opener, resolvers["xnnpack"], model, inputs)
            if status != "ran":
                return status, result
            interpreter = opener(model_content=model, num_threads=1, experimental_op_resolver_type=resolvers["xnnpack"])
            interpreter.allocate_tensors()
            found = delegation(interpreter._get_ops_details())
            return (status, result) if found["delegated"] == found["total"] else ("refused", "left to builtin kernels")

        return answer

    serve(start)


if __name__ == "__main__":
    main()
