"""What a worker does with one op test: convert it, run it in LiteRT, compare with the outputs that ship with it."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.cases import Case
from tests.harness.child import stage
from tests.harness.compare import difference
from tests.harness.litert import Array, narrow
from tests.harness.other import DEFAULT, run_tflite_on
from tests.harness.workers import ROOT, Outcome, Worker

TIMEOUT = 60.0
_BFLOAT16_RTOL = 2.0**-6


@dataclass(frozen=True)
class Result:
    """``reason``: "" for a pass, else the kind of failure in a few words, the same for failures of one kind.
    ``message``: the whole message. ``detail``: a traceback where there is one."""

    reason: str = ""
    message: str = ""
    detail: str = ""

    @property
    def passed(self) -> bool:
        """True where the model converts and gives the right numbers."""
        return not self.reason


def run_case(worker: Worker, case: Case) -> Result:
    """Run a case in ``worker``."""
    return result_of(worker.run("tests.conformance.run_case:attempt", case, TIMEOUT))


def result_of(outcome: Outcome) -> Result:
    """The result of a case whose job ended with ``outcome``."""
    if outcome.kind == "done":
        result: Result = outcome.value
        return result
    return Result(f"{outcome.stage}: {outcome.kind}", outcome.message, outcome.detail)


def attempt_on(job: tuple[Case, str]) -> Result:
    """As `attempt`, on another runtime (see `tests.harness.other`)."""
    return attempt(*job)


def attempt(case: Case, runtime: str = DEFAULT) -> Result:
    """Convert and run a case; in the child."""
    stage("convert")
    try:
        model = _convert(case.model)
    except Exception as error:
        return conversion_failure(error)
    stage("run")
    for inputs, outputs in case.data_sets:
        try:
            actual = [array for _, array in run_tflite_on(runtime, model, inputs)]
        except (RuntimeError, ValueError, TypeError) as error:
            return _run_failure(error)
        message = _compare(case, actual, outputs)
        if message:
            return Result("run: " + message.partition(":")[0], message)
    return Result()


def _convert(model: bytes) -> bytes:
    import onnxtfl

    data = onnxtfl.onnx_to_tflite(model, check=False).data
    if not isinstance(data, bytes):
        raise TypeError(f"Conversion.data is {type(data).__name__}, not bytes")
    return data


def conversion_failure(error: Exception) -> Result:
    """The result of a case whose conversion raised `error`."""
    from onnxtfl.errors import OnnxtflError

    if isinstance(error, OnnxtflError):
        op = f" ({error.op})" if error.op else ""
        return Result(f"{type(error).__name__}{op}: {brief(error.message)}", str(error))
    where = _innermost(error)
    return Result(f"BUG {type(error).__name__} in {where}", f"{type(error).__name__}: {error}", traceback.format_exc())


def _innermost(error: Exception) -> str:
    """The function of the project in which an exception that should not have come out was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _ours(frame.filename)]
    if not frames:
        return "the harness"
    return f"{Path(frames[-1].filename).relative_to(ROOT).as_posix()} {frames[-1].name}"


def _ours(filename: str) -> bool:
    path = Path(filename)
    return any(path.is_relative_to(ROOT / room) for room in ("converter", "mappings", "schemas"))


def _run_failure(error: Exception) -> Result:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return Result("run: refused: " + brief(lines[-1]), " | ".join(lines))


def _compare(case: Case, actual: list[Array], expected: tuple[Array, ...]) -> str:
    if len(actual) != len(expected):
        return f"wrong count: {len(actual)} outputs instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
        message = _interface_difference(a, b) if case.random else _difference(a, b, case)
        if message:
            return f"{message} (output {i})"
    return ""


def _difference(actual: Array, expected: Array, case: Case) -> str:
    rtol = max(case.rtol, _BFLOAT16_RTOL) if expected.dtype.name == "bfloat16" else case.rtol
    return difference(actual, expected, rtol, case.atol)


def _interface_difference(actual: Array, expected: Array) -> str:
    expected = narrow(expected)
    if (actual.dtype, actual.shape) == (expected.dtype, expected.shape):
        return ""
    return f"wrong interface: {actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"


def brief(message: str, limit: int = 90) -> str:
    """A message without what differs from case to case (quoted names, numbers, brackets), to group by."""
    text = re.sub(r"'[^']*'|\"[^\"]*\"", "_", message)
    text = re.sub(r"\[[^\]]*\]|\([^)]*\)", "", text)
    text = re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", text)
    return " ".join(text.split())[:limit].rstrip(" :;,.")
