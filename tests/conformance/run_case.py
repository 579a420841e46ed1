"""Runs one op test in a worker process: convert it, run it in LiteRT, compare with its expected outputs."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.conformance.cases import Case
from tests.harness.child import stage
from tests.harness.compare import difference
from tests.harness.io_types import IoTypes
from tests.harness.litert import Array, narrow
from tests.harness.runtimes import DEFAULT, run_tflite_on
from tests.harness.workers import ROOT, Outcome, Worker

TIMEOUT = 60.0
_BFLOAT16_RTOL = 2.0**-6


@dataclass(frozen=True)
class Result:
    """Outcome of a case.

    ``reason``: kind of failure, equal for failures of one kind; "" for a pass. ``message``: the whole message.
    ``detail``: the traceback of an exception.
    """

    reason: str = ""
    message: str = ""
    detail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the model converts and its outputs are correct."""
        return not self.reason


def run_case(worker: Worker, case: Case) -> Result:
    """Run a case in ``worker``."""
    return result_of(worker.run("tests.conformance.run_case:attempt", case, TIMEOUT))


def result_of(outcome: Outcome) -> Result:
    """The result for the outcome of a worker's job."""
    if outcome.kind == "done":
        result: Result = outcome.value
        return result
    return Result(f"{outcome.stage}: {outcome.kind}", outcome.message, outcome.detail)


def attempt_on(job: tuple[Case, str]) -> Result:
    """As `attempt`, on another runtime (see `tests.harness.runtimes`)."""
    return attempt(*job)


def attempt(case: Case, runtime: str = DEFAULT) -> Result:
    """Convert and run a case, in the worker process."""
    stage("convert")
    try:
        model, types = _convert(case)
    except Exception as error:
        return conversion_failure(error)
    stage("run")
    for inputs, outputs in case.data_sets:
        try:
            actual = types.read([array for _, array in run_tflite_on(runtime, model, types.given(inputs))])
        except (RuntimeError, ValueError, TypeError) as error:
            return _run_failure(error)
        message = _compare(case, actual, outputs)
        if message:
            return Result("run: " + message.partition(":")[0], message)
    return Result()


def _convert(case: Case) -> tuple[bytes, IoTypes]:
    import onnxtfl

    done = onnxtfl.onnx_to_tflite(case.model, check=False, elements=case.elements, input_shapes=case.shapes)
    if not isinstance(done.data, bytes):
        raise TypeError(f"Conversion.data is {type(done.data).__name__}, not bytes")
    return done.data, IoTypes(done.report)


def conversion_failure(error: Exception) -> Result:
    """The result for an exception of the conversion."""
    from onnxtfl.errors import OnnxtflError

    if isinstance(error, OnnxtflError):
        op = f" ({error.op})" if error.op else ""
        return Result(f"{type(error).__name__}{op}: {generalized(error.message)}", str(error))
    where = _innermost(error)
    return Result(f"BUG {type(error).__name__} in {where}", f"{type(error).__name__}: {error}", traceback.format_exc())


def _innermost(error: Exception) -> str:
    """The innermost function of the project in the traceback of ``error``."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _ours(frame.filename)]
    if not frames:
        return "the harness"
    return f"{Path(frames[-1].filename).relative_to(ROOT).as_posix()} {frames[-1].name}"


def _ours(filename: str) -> bool:
    path = Path(filename)
    return any(path.is_relative_to(ROOT / folder) for folder in ("converter", "mappings", "schemas"))


def _run_failure(error: Exception) -> Result:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return Result("run: refused: " + generalized(lines[-1]), " | ".join(lines))


def _compare(case: Case, actual: list[Array], expected: tuple[Array, ...]) -> str:
    expected = _as_one(actual, expected)
    if len(actual) != len(expected):
        return f"wrong count: {len(actual)} outputs instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        message = _interface_difference(a, b) if case.random else _difference(a, b, case)
        if message:
            return f"{message} (output {i})"
    return ""


def _as_one(actual: list[Array], expected: tuple[Array, ...]) -> tuple[Array, ...]:
    """A sequence of a length that only a run knows is one output: its elements along axis 0."""
    shapes = {array.shape for array in expected}
    if len(actual) == 1 < len(expected) and len(shapes) == 1 and actual[0].shape == (len(expected), *shapes.pop()):
        return (np.stack(expected),)
    return expected


def _difference(actual: Array, expected: Array, case: Case) -> str:
    rtol = max(case.rtol, _BFLOAT16_RTOL) if expected.dtype.name == "bfloat16" else case.rtol
    return difference(_decoded(actual), expected, rtol, case.atol)


def _decoded(array: Array) -> Array:
    """Strings, which LiteRT returns as bytes of UTF-8; other arrays as they are."""
    if array.dtype != object:
        return array
    return np.asarray([text.decode() for text in array.reshape(-1)], object).reshape(array.shape)


def _interface_difference(actual: Array, expected: Array) -> str:
    expected = narrow(expected)
    if (actual.dtype, actual.shape) == (expected.dtype, expected.shape):
        return ""
    return f"wrong interface: {actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"


def generalized(message: str, limit: int = 90) -> str:
    """``message`` without the details of a case (quoted names, numbers, brackets), to group by."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "_", message)
    text = re.sub(r"\[[^\]]*\]|\([^)]*\)", "", text)
    text = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", text)
    return " ".join(text.split())[:limit].rstrip(" :;,.")
