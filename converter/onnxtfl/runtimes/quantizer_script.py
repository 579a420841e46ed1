"""Quantizes one .tflite file with litert-quantizer: a script, run in a child process.

It imports nothing of onnxtfl. Request on stdin, one JSON object: ``{"model", "out", "mode", "inputs", "samples": [npz],
"float_io", "float_ops", "divisors", "exponents", "unsupported", "places": [directory]}``; the answer on stdout: ``{}``
or ``{"error"}``. A sample has the values of the inputs, whose names are in ``"inputs"``, by position: ``i0``, ``i1``,
... The directories "places" have the parent's temporary folders, which are removed if it is killed.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

# "onnxtfl/runtimes" must not be on the path of the script, or its modules would hide others of the same name.
if __name__ == "__main__" and sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
    del sys.path[0]

import numpy as np

SIGNATURE = "serving_default"
LEVELS = {"int8": 255, "int16x8": 65535}
"""The number of steps of activations."""
FINE = 0.5
"""The largest step of an exponent: a factor of 1.3 after rounding."""
LARGEST = 1e30
"""The widest range that is quantized: kernels multiply scales, and abort where a product is not finite."""


def quantize(request: dict[str, Any]) -> None:
    """Write the quantized model."""
    from litert_quantizer import quantizer

    made = quantizer.Quantizer(request["model"])
    made.load_quantization_recipe(recipe_of(request["mode"]))
    keep_float(made, [*request["float_ops"], *(("INPUT", "OUTPUT") if request["float_io"] else ())])
    found, ops = None, ops_of(request["model"])
    kept = [op for op in ops if op.crosses or not set(op.results).isdisjoint(request["unsupported"])]
    if made.need_calibration:
        found = of_tensor_ranks(extremes_of(request["model"], samples(request)), ops)
        levels = LEVELS[request["mode"]]
        names = wide(found) | coarse(request["exponents"], found, levels) | small(request["divisors"], found, levels)
        kept += [op for op in ops if names.intersection([*op.operands, *op.results])]
        kept += [op for op in ops if not op.computed <= found.keys()]  # in a branch that no sample executes
    keep_these_float(made, kept)
    result = made.quantize(found, enable_progress_bar=False, enable_progress_report=False).quantized_model
    with open(request["out"], "wb") as out:
        out.write(result)


def extremes_of(path: str, given: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least and the largest value of each tensor over all samples.

    By default the library averages them, mostly over the first samples: larger elements are clipped, and the error
    grows over the steps of a recurrent layer.
    """
    from litert_quantizer import calibrator, recipe_manager
    from litert_quantizer.utils import qsv_utils

    mode = calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED
    made = calibrator.Calibrator(path, mode=mode, qsv_update_func=qsv_utils.min_max_update)
    made.calibrate({SIGNATURE: given}, recipe_manager.RecipeManager())
    found: dict[str, Any] = made.get_model_qsvs()
    return found


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
    """Keep these ops in float, between DEQUANTIZE and QUANTIZE ops."""
    from litert_quantizer import algorithm_manager, qtyping

    for name in names:
        if name in qtyping.TFLOperationName.__members__:
            op, nothing = qtyping.TFLOperationName[name], algorithm_manager.AlgorithmName.NO_QUANTIZE
            made.update_quantization_recipe(".*", op, algorithm_key=nothing)


@dataclass(frozen=True)
class Op:
    """An op of the model: the names of its operands and results, the ranks of both, and how recipes name it.

    `computed`: the names of float results in other subgraphs than the first. `crosses`: whether it is one of the two
    ops with which the library reads and writes the inputs and outputs of a subgraph, or reads an input that is also an
    output of the subgraph. These tensors are float: the calling op is not quantized.
    """

    operands: list[str]
    results: list[str]
    ranks: dict[str, int]
    scope: str
    computed: frozenset[str] = frozenset()
    crosses: bool = False


def ops_of(path: str) -> list[Op]:
    """Return the ops of all subgraphs, in order."""
    from litert_quantizer.utils import tfl_flatbuffer_utils as utils

    found = []
    for k, subgraph in enumerate(utils.read_model(path).subgraphs):
        tensors = [(utils.get_tensor_name(t), 0 if t.shape is None else len(t.shape)) for t in subgraph.tensors]
        passed_on = set(subgraph.inputs).intersection(subgraph.outputs) if k else set()
        edges = utils.get_subgraph_input_output_operators(subgraph) if k else []
        for op in [*subgraph.operators, *edges]:
            sides = [[tensors[i] for i in side if i >= 0] for side in (op.inputs, op.outputs)]
            operands, results = ([name for name, _ in side] for side in sides)
            computed = frozenset(tensors[i][0] for i in op.outputs if k and not subgraph.tensors[i].type)
            crosses = op in edges or not passed_on.isdisjoint(op.inputs)
            scope = utils.get_op_scope(op, subgraph.tensors)
            found.append(Op(operands, results, dict(chain(*sides)), scope, computed, crosses))
    return found


def of_tensor_ranks(found: dict[str, Any], ops: list[Op]) -> dict[str, Any]:
    """Return the extremes of each tensor with its rank, which the library compares when it quantizes constants."""
    ranks = {name: rank for op in ops for name, rank in op.ranks.items()}
    return {
        name: {
            key: np.reshape(value, (1,) * ranks[name]) if name in ranks and np.size(value) == 1 else value
            for key, value in extremes.items()
        }
        for name, extremes in found.items()
    }


def wide(found: dict[str, Any]) -> set[str]:
    """Return the tensors whose range is not finite or too large for kernels, as with masks of -infinity."""
    return {name for name, extremes in found.items() if not span(extremes) <= LARGEST}


def coarse(groups: list[list[str]], found: dict[str, Any], levels: int) -> set[str]:
    """Return the tensors in `groups` of exponents whose step is large, such as scores with a mask of -10000."""
    names = (group for group in groups if any(span(found[n]) > FINE * levels for n in group if n in found))
    return set(chain.from_iterable(names))


def small(divisors: list[dict[str, list[str]]], found: dict[str, Any], levels: int) -> set[str]:
    """Return the tensors in `divisors` with elements smaller than a step, which may become 0."""
    names = set[str]()
    for divisor in divisors:
        known = [found[name] for name in divisor["checked"] if name in found]
        if any(least(extremes) < span(extremes) / levels for extremes in known):
            names.update(divisor["checked"], divisor["others"])
    return names


def least(extremes: dict[str, Any]) -> float:
    """Return the smallest magnitude between the extremes."""
    low, high = (float(np.ravel(extremes[key])[0]) for key in ("min", "max"))
    return max(low, -high, 0.0)


def span(extremes: dict[str, Any]) -> float:
    """Return the largest minus the least value, 0 included; NaN for unknown ones."""
    low, high = (np.asarray(extremes.get(key, np.nan), np.float64) for key in ("min", "max"))
    with np.errstate(invalid="ignore"):
        return float(np.max(np.maximum(high, 0) - np.minimum(low, 0), initial=0.0))


def keep_these_float(made: Any, ops: list[Op]) -> None:
    """Keep these ops in float, between DEQUANTIZE and QUANTIZE ops."""
    from litert_quantizer import algorithm_manager, qtyping

    every, nothing = qtyping.TFLOperationName.ALL_SUPPORTED, algorithm_manager.AlgorithmName.NO_QUANTIZE
    if ops:
        scopes = "|".join(dict.fromkeys(re.escape(op.scope) for op in ops))
        made.update_quantization_recipe(f"^(?:{scopes})$", every, algorithm_key=nothing)


def samples(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calibration samples by input name."""
    return list(_read(request))


def _read(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in request["samples"]:
        with np.load(path, allow_pickle=False) as arrays:
            yield {name: arrays[f"i{k}"] for k, name in enumerate(request["inputs"])}


def _end_with_parent(places: list[str]) -> None:
    """Call this function of ``onnxtfl.temporary``; `places`: where the parent has temporary folders."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "temporary.py")
    runpy.run_path(path)["end_with_parent"](places)


def main() -> None:
    """Answer one request. What the library prints on stdout goes to stderr."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        request = json.loads(sys.stdin.read())
        _end_with_parent(request["places"])
        quantize(request)
        answer = {}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    channel.write(json.dumps(answer))
    channel.close()


if __name__ == "__main__":
    main()
