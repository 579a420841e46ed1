"""Quantizes one .tflite file with litert-quantizer: a plain script, run in a child process.

It imports nothing of onnxtfl. Request on stdin, one JSON object: ``{"model", "out", "mode", "inputs", "samples": [npz],
"float_io", "float_ops"}``; the answer on stdout: ``{}`` or ``{"error"}``. A sample has the values of the inputs, whose
names are in ``"inputs"``, by position: ``i0``, ``i1``, ...
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

# "onnxtfl/runtimes" must not be on the path of the script, or its modules would hide others of the same name.
if __name__ == "__main__" and sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

import numpy as np

SIGNATURE = "serving_default"


def quantize(request: dict[str, Any]) -> None:
    """Write the quantized model."""
    from litert_quantizer import calibrator, quantizer

    made = quantizer.Quantizer(request["model"])
    made.load_quantization_recipe(recipe_of(request["mode"]))
    keep_float(made, [*request["float_ops"], *(("INPUT", "OUTPUT") if request["float_io"] else ())])
    found = None
    if made.need_calibration:
        mode = calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED
        found = made.calibrate({SIGNATURE: samples(request)}, mode=mode)
    result = made.quantize(found, enable_progress_bar=False, enable_progress_report=False).quantized_model
    with open(request["out"], "wb") as out:
        out.write(result)


def recipe_of(mode: str) -> Any:
    """Return the library's recipe for a mode."""
    from litert_quantizer import algorithm_manager, qtyping, recipe, recipe_manager

    known = {"dynamic": recipe.dynamic_wi8_afp32, "int8": recipe.static_wi8_ai8, "int16x8": recipe.static_wi8_ai16}
    if mode in known:
        return known[mode]()
    manager = recipe_manager.RecipeManager()
    every, casting = qtyping.TFLOperationName.ALL_SUPPORTED, algorithm_manager.AlgorithmName.FLOAT_CASTING
    manager.add_weight_only_config(regex=".*", operation_name=every, num_bits=16, algorithm_key=casting)
    return manager.get_quantization_recipe()


def keep_float(made: Any, names: list[str]) -> None:
    """Leave these ops as they are; QUANTIZE and DEQUANTIZE ops come around them."""
    from litert_quantizer import algorithm_manager, qtyping

    for name in names:
        if name in qtyping.TFLOperationName.__members__:
            op, nothing = qtyping.TFLOperationName[name], algorithm_manager.AlgorithmName.NO_QUANTIZE
            made.update_quantization_recipe(".*", op, algorithm_key=nothing)


def samples(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calibration samples by input name."""
    return list(_read(request))


def _read(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in request["samples"]:
        with np.load(path, allow_pickle=False) as arrays:
            yield {name: arrays[f"i{k}"] for k, name in enumerate(request["inputs"])}


def main() -> None:
    """Answer one request. What the library prints on stdout goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        quantize(json.loads(sys.stdin.read()))
        answer = {}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    channel.write(json.dumps(answer))
    channel.close()


if __name__ == "__main__":
    main()
