"""The child process of the probe: runs one-op models in the TFLite runtime that its Python has; it may crash.

A script for Python 3.9 and newer, with NumPy and one runtime. Reads pickled ``(kernels, model, inputs)`` from standard
input, an input being ``(shape, dtype, bytes)`` or, for strings, ``(shape, "string", [bytes])``; answers
``("ran", outputs)`` or ``("refused", message)``.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

# The modules in the folder of this script must not hide those that the runtime imports.
if __name__ == "__main__" and sys.path:
    del sys.path[0]

import numpy as np

GREETING = b"ready\n"


def load() -> tuple[Any, dict[str, Any]]:
    """The Interpreter class of this Python's runtime, and its op resolvers by kernel set."""
    try:
        from ai_edge_litert import interpreter as module
    except ImportError:
        from tflite_runtime import interpreter as module
    types = module.OpResolverType
    without = types.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return module.Interpreter, {"xnnpack": types.AUTO, "builtin": without, "reference": types.BUILTIN_REF}


def run(opener: Any, resolver: Any, model: bytes, inputs: list[Any]) -> tuple[str, Any]:
    """Run a model once."""
    try:
        interpreter = opener(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
        for detail, packed in zip(interpreter.get_input_details(), inputs):  # noqa: B905 (Python 3.9)
            if 0 in detail["shape_signature"] or -1 in detail["shape_signature"]:
                interpreter.resize_tensor_input(detail["index"], packed[0])
        interpreter.allocate_tensors()
        for detail, packed in zip(interpreter.get_input_details(), inputs):  # noqa: B905 (Python 3.9)
            array = unpack(packed)
            if array.size:
                interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return "ran", [pack(fetch(interpreter, detail)) for detail in interpreter.get_output_details()]
    except (ValueError, RuntimeError, TypeError) as error:
        return "refused", str(error)


def fetch(interpreter: Any, detail: Any) -> Any:
    """The array of an output (get_tensor cannot read an empty one)."""
    shape = interpreter._interpreter.TensorSize(int(detail["index"]), 0)
    return np.zeros(shape, detail["dtype"]) if 0 in shape else interpreter.get_tensor(detail["index"])


def pack(array: Any) -> Any:
    """``array`` as (shape, dtype, bytes), which every version of NumPy can read."""
    if array.dtype.kind in "OS":
        return array.shape, "string", [bytes(item) for item in array.reshape(-1)]
    return array.shape, array.dtype.str, array.tobytes()


def unpack(packed: Any) -> Any:
    """The array from the result of `pack`."""
    shape, dtype, content = packed
    if dtype != "string":
        return np.frombuffer(content, dtype).reshape(shape)
    array = np.empty(len(content), dtype=object)
    array[:] = content
    return array.reshape(shape)


def serve(start: Callable[[], Callable[[str, bytes, list[Any]], Any]]) -> None:
    """Answer requests with the function that `start` returns, until standard input ends.

    Output of native code is redirected to standard error.
    """
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer = start()
    channel.write(GREETING)
    channel.flush()
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(answer(*request), channel, protocol=4)
        channel.flush()


def main() -> None:
    """Serve requests with the runtime of this Python."""

    def start() -> Callable[[str, bytes, list[Any]], Any]:
        opener, resolvers = load()
        return lambda kernels, model, inputs: run(opener, resolvers[kernels], model, inputs)

    serve(start)


if __name__ == "__main__":
    main()
