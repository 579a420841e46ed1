"""Random inputs for .tflite files: floats in [0, 1), integers of 8 bits in [0, 100), others 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.harness.litert import Array, names_of


def samples_of(data: bytes, seed: int = 0) -> dict[str, Array]:
    """An array for each input of the model, by name; dynamic sizes as in `shape` of the file (1)."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=data, num_threads=1)
    details = interpreter.get_input_details()
    random = np.random.default_rng(seed)
    names = names_of(interpreter, details, "inputs")
    return {name: _sample(random, detail) for name, detail in zip(names, details, strict=True)}


def _sample(random: np.random.Generator, detail: Any) -> Array:
    shape, dtype = tuple(detail["shape"]), np.dtype(detail["dtype"])
    if dtype.kind == "f":
        return random.random(shape).astype(dtype)
    return random.integers(0, 2 if dtype.kind == "b" or dtype.itemsize > 1 else 100, shape).astype(dtype)
