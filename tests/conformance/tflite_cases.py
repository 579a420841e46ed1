"""The corpus' small .tflite models of one op each: converted to ONNX, run in ONNX Runtime, compared.

tflite-ops.zip of the corpus has CASE/model.tflite, CASE/io.npz (in_K, out_K in LiteRT's order), CASE/case.json.
Models with state run several times, on other inputs each time: LiteRT keeps the state, for ONNX it is fed back.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxtfl.formats.onnx.state_metadata import decode
from tests.conformance.run_case import Result, conversion_failure, generalized
from tests.harness.child import stage
from tests.harness.compare import largest_error
from tests.harness.litert import Array, run_onnx, run_tflite_steps
from tests.models.corpus import CORPUS

ARCHIVE = CORPUS / "tflite-ops.zip"
RUNS = 3
"""How often a model with state runs."""
STATEFUL = frozenset(
    {
        *("VAR_HANDLE", "CALL_ONCE", "HASHTABLE", "SVDF", "RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"),
        *("BIDIRECTIONAL_SEQUENCE_RNN", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"),
    }
)
_QUANTIZED_SHARE = 0.99
"""Of the elements of a quantized output that may differ by at most one unit."""


@dataclass(frozen=True)
class TfliteCase:
    """One model. ``quantization``: "none", or how it is quantized. ``random``: only dtypes and shapes can be compared.

    ``quantized_outputs``: for each output whether it is quantized (its elements may differ by one unit). ``kernels``:
    those whose outputs the case has.
    """

    name: str
    ops: tuple[str, ...]
    model: bytes
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    quantization: str
    random: bool
    quantized_outputs: tuple[bool, ...]
    kernels: str = "reference"
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
    kernels = "reference" if facts["resolver"] == "BUILTIN_REF" else "builtin"
    arrays = tuple(inputs), tuple(outputs)
    return TfliteCase(name, ops, model, *arrays, facts["quant"], facts["random"], quantized, kernels)


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
    steps = [case.inputs]
    if STATEFUL & set(case.ops):
        steps += [tuple(np.roll(x.reshape(-1), k).reshape(x.shape) for x in case.inputs) for k in range(1, RUNS)]
    try:
        actual = run_steps(model, steps)
        wanted = [case.outputs, *run_tflite_steps(case.model, steps, case.kernels)[1:]] if steps[1:] else [case.outputs]
    except Exception as error:
        return Result("run: refused: " + generalized(str(error).splitlines()[0]), str(error))
    results = (_compared(replace(case, outputs=tuple(w)), a) for w, a in zip(wanted, actual, strict=True))
    return next((result for result in results if not result.passed), Result())


def _convert(model: bytes) -> bytes:
    import onnx

    import onnxtfl

    data = onnxtfl.tflite_to_onnx(model, check=False).data
    assert isinstance(data, bytes)
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    return data


def run_steps(model: bytes, steps: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The outputs of each run without those that are states, which are fed to the next run."""
    import onnx

    proto = onnx.load_from_string(model)
    types = {v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in proto.graph.input}
    states = decode({p.key: p.value for p in proto.metadata_props}, types)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in proto.graph.input}
    given = {s.input: _filled(s.initial, shapes[s.input]) for s in states if s.input and s.initial is not None}
    names = [name for name in types if name not in given]
    found = []
    for inputs in steps:
        outputs = run_onnx(model, {**dict(zip(names, map(_plain, inputs), strict=True)), **given})
        given |= {s.input: outputs[s.output] for s in states if s.input and s.output}
        found.append([value for name, value in outputs.items() if name not in {s.output for s in states}])
    return found


def _filled(initial: Array, shape: Sequence[int]) -> Array:
    return np.broadcast_to(initial, shape) if initial.ndim == 0 else initial


def _compared(case: TfliteCase, actual: Sequence[Array]) -> Result:
    if not case.outputs and case.random:
        return Result()
    if len(actual) != len(case.outputs):
        return Result("run: wrong count", f"{len(actual)} outputs instead of {len(case.outputs)}")
    for i, (got, want) in enumerate(zip(map(_text, actual), map(_plain, case.outputs), strict=True)):
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            message = f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)} (output {i})"
            return Result("run: wrong dtype or shape", message)
        if case.random or (case.quantized_outputs[i] and _near(got, want)):
            continue
        error = largest_error(got, want)
        if not error <= 1:
            return Result("run: wrong values", f"{error:.3g} times the tolerance (output {i})")
    return Result()


def _plain(array: Array) -> Array:
    """An array as the ONNX model has it: complex numbers are pairs, strings are of type str."""
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else _text(array)


def _text(array: Array) -> Array:
    """Strings as objects of type str; other arrays as they are."""
    if array.dtype.kind not in "SO":
        return array
    texts = [x.decode() if isinstance(x, bytes) else str(x) for x in array.reshape(-1).tolist()]
    return np.asarray(texts, object).reshape(array.shape)


def _near(got: Array, want: Array) -> bool:
    """Whether nearly all elements are equal or differ by one unit."""
    error = np.abs(got.astype(np.int64) - want.astype(np.int64))
    return bool(error.size == 0 or np.mean(error <= 1) >= _QUANTIZED_SHARE)
