"""Corrupt files: a conversion succeeds or raises an OnnxtflError with a one-line message."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.workers import ROOT, Worker

_TIMEOUT = 60.0


@pytest.fixture(scope="module")
def tflite_file(worker: Worker) -> bytes:
    outcome = worker.run("tests.fuzz.test_bad_files:convert_demo", None, _TIMEOUT)
    assert outcome.kind == "done", outcome.message
    data: bytes = outcome.value
    return data


def convert_demo(_: None) -> bytes:
    """The digits network as TFLite, in the worker process."""
    import onnxtfl

    data = onnxtfl.onnx_to_tflite(ROOT / "examples" / "digits.onnx", check=False).data
    assert isinstance(data, bytes)
    return data


def convert_onnx(data: bytes) -> str:
    """The message of the error for ONNX bytes, "" for success; in the worker process."""
    import onnxtfl

    try:
        onnxtfl.onnx_to_tflite(data, check=False)
    except onnxtfl.OnnxtflError as error:
        return str(error)
    return ""


def convert_tflite(data: bytes) -> str:
    """The message of the error for TFLite bytes, "" for success; in the worker process."""
    import onnxtfl

    try:
        onnxtfl.tflite_to_onnx(data, check=False)
    except onnxtfl.OnnxtflError as error:
        return str(error)
    return ""


def _corrupted(data: bytes, seed: int) -> bytes:
    """``data`` truncated, or with bytes changed near its ends: in between are weights, which may have any value."""
    random = np.random.default_rng(seed)
    if seed % 4 == 0:
        return data[: random.integers(len(data))]
    changed = bytearray(data)
    from_ends = random.integers(0, min(1500, len(data) // 2), 1 + seed % 5)
    for i in from_ends:
        position = int(i) if random.integers(2) else len(data) - 1 - int(i)
        changed[position] = int(random.integers(256))
    return bytes(changed)


def _check(worker: Worker, function: str, data: bytes) -> None:
    outcome = worker.run(f"tests.fuzz.test_bad_files:{function}", data, _TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    assert "\n" not in outcome.value


@pytest.mark.parametrize("seed", range(120))
def test_corrupt_onnx(worker: Worker, seed: int) -> None:
    _check(worker, "convert_onnx", _corrupted((ROOT / "examples" / "digits.onnx").read_bytes(), seed))


@pytest.mark.parametrize("seed", range(120))
def test_corrupt_tflite(worker: Worker, tflite_file: bytes, seed: int) -> None:
    _check(worker, "convert_tflite", _corrupted(tflite_file, seed))


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 64, b"TFL3" * 20, b"\xff" * 1000], ids=["empty", "zeros", "tfl3", "ones"]
)
@pytest.mark.parametrize("function", ["convert_onnx", "convert_tflite"])
def test_not_a_model(worker: Worker, function: str, data: bytes) -> None:
    outcome = worker.run(f"tests.fuzz.test_bad_files:{function}", data, _TIMEOUT)
    assert outcome.kind == "done", f"{outcome.kind}: {outcome.message}\n{outcome.detail}"
    assert outcome.value
