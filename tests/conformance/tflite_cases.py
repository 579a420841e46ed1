"""The corpus' small .tflite models of one op each: converted to ONNX, run in ONNX Runtime, compared.

tflite-ops.zip of the corpus has CASE/model.tflite, CASE/io.npz (in_K, out_K in LiteRT's order), CASE/case.json.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.run_case import Result, conversion_failure, generalized
from tests.harness.child import stage
from tests.harness.compare import largest_error
from tests.harness.litert import Array, run_onnx
from tests.models.corpus import CORPUS

ARCHIVE = CORPUS / "tflite-ops.zip"
_QUANTIZED_SHARE = 0.99
"""Of the elements of a quantized output that may differ by at most one unit."""


@dataclass(frozen=True)
class TfliteCase:
    """One model. ``quantization``: "none", or how it is quantized. ``random``: only dtypes and shapes can be compared.

    ``quantized_outputs``: for each output whether it is quantized (its elements may differ by one unit).
    """

    name: str
    ops: tuple[str, ...]
    model: bytes
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    quantization: str
    random: bool
    quantized_outputs: tuple[bool, ...]
    types: frozenset[int] = frozenset()


def load_tflite_cases() -> list[TfliteCase]:
    """All cases, sorted by name; none without the corpus."""
    if not ARCHIVE.exists():
        return []
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = sorted({name.split("/")[0] for name in archive.namelist()})
        return [_read(archive, name) for name in names]


def _read(archive: zipfile.ZipFile, name: str) -> TfliteCase:
    facts = json.loads(archive.read(f"{name}/case.json"))
    with np.load(io.BytesIO(archive.read(f"{name}/io.npz")), allow_pickle=True) as arrays:
        inputs, outputs = ([arrays[f"{side}_{i}"] for i in range(_count(arrays, side))] for side in ("in", "out"))
    model = archive.read(f"{name}/model.tflite")
    quantized = tuple(output["quant"] is not None for output in facts["outputs"])
    ops = (facts["op"], *facts["ops"])
    return TfliteCase(name, ops, model, tuple(inputs), tuple(outputs), facts["quant"], facts["random"], quantized)


def _count(arrays: Any, side: str) -> int:
    return sum(key.startswith(f"{side}_") for key in arrays.files)


def attempt_to_onnx(job: tuple[TfliteCase, str]) -> Result:
    """Convert and run a case, in the worker process."""
    case, _ = job
    stage("convert")
    try:
        model = _convert(case.model)
    except Exception as error:
        return conversion_failure(error)
    stage("run")
    try:
        actual = _run(model, case.inputs)
    except Exception as error:
        return Result("run: refused: " + generalized(str(error).splitlines()[0]), str(error))
    return _compared(case, actual)


def _convert(model: bytes) -> bytes:
    import onnx

    import onnxtfl

    data = onnxtfl.tflite_to_onnx(model, check=False).data
    assert isinstance(data, bytes)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    return data


def _run(model: bytes, inputs: Sequence[Array]) -> list[Array]:
    import onnx

    names = [value.name for value in onnx.load_from_string(model).graph.input]
    return list(run_onnx(model, dict(zip(names, inputs, strict=True))).values())


def _compared(case: TfliteCase, actual: Sequence[Array]) -> Result:
    if not case.outputs and case.random:
        return Result()
    if len(actual) != len(case.outputs):
        return Result("run: wrong count", f"{len(actual)} outputs instead of {len(case.outputs)}")
    for i, (got, want) in enumerate(zip(actual, case.outputs, strict=True)):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            message = f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)} (output {i})"
            return Result("run: wrong dtype or shape", message)
        if case.random or (case.quantized_outputs[i] and _near(got, want)):
            continue
        error = largest_error(got, want)
        if not error <= 1:
            return Result("run: wrong values", f"{error:.3g} times the tolerance (output {i})")
    return Result()


def _near(got: Array, want: Array) -> bool:
    """Whether nearly all elements are equal or differ by one unit."""
    error = np.abs(got.astype(np.int64) - want.astype(np.int64))
    return bool(error.size == 0 or np.mean(error <= 1) >= _QUANTIZED_SHARE)
