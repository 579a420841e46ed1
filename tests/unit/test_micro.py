"""TFLite Micro as the runtime of a check (extra `micro`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onnxtfl
from onnxtfl.runtimes import MICRO, RunError, RunOptions, Worker
from onnxtfl.runtimes.arenas import least_arena
from tests.unit.tiny_models import onnx_scale, saved, tflite_model, tflite_scale

needs_micro = pytest.mark.skipif(not MICRO.available(), reason="needs tflite-micro (pip install 'onnxtfl[micro]')")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@needs_micro
def test_a_model_runs(tmp_path: Path) -> None:
    with MICRO.worker() as worker:
        np.testing.assert_array_equal(worker.run(saved(tflite_scale(), tmp_path / "m.tflite"), [X])[0], 2 * X)


@needs_micro
def test_a_large_arena_is_found(tmp_path: Path) -> None:
    x = np.ones((1 << 10, 1 << 10), np.float32)  # 4 MB in, 4 MB out
    with MICRO.worker() as worker:
        got = worker.run(saved(tflite_scale(shape=x.shape), tmp_path / "m.tflite"), [x])[0]
    np.testing.assert_array_equal(got, 2 * x)


@pytest.mark.parametrize("needed", [12_000, 12_100, 17_000, 30_000, 80_000])
def test_the_size_of_an_arena(needed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than what is in use, 12,000 bytes, to plan the memory; with less, any op may be said to fail."""
    kinds = iter(("load", "crash", "memory", "unsupported") * 9)

    def arena(worker: Worker, model: str, size: int, options: RunOptions) -> int:
        if 0 < size < needed:
            raise RunError(next(kinds), "Node ADD failed to prepare")
        return 12_000

    monkeypatch.setattr(Worker, "arena", arena)
    found = least_arena(Worker("micro", "python"), "m.tflite")
    assert needed <= found <= max(needed + 256, needed * 33 // 32)


@needs_micro
def test_an_op_that_it_lacks_is_named(tmp_path: Path) -> None:
    model = saved(tflite_model("GELU", [("x", (2, 3), None)], ("y", (2, 3))), tmp_path / "m.tflite")
    with MICRO.worker() as worker, pytest.raises(RunError, match="TFLite Micro has no op GELU") as error:
        worker.run(model, [X])
    assert error.value.kind == "unsupported"


@needs_micro
def test_a_check_with_micro(tmp_path: Path) -> None:
    a, b = saved(onnx_scale(), tmp_path / "a.onnx"), saved(tflite_scale(), tmp_path / "b.tflite")
    report = onnxtfl.check(a, b, runtime="micro")
    assert report.ok
    assert report.runtimes[1].startswith("micro ")
    wrong = saved(tflite_scale(2.1), tmp_path / "c.tflite")
    assert onnxtfl.check(a, wrong, runtime="micro").status == "failed"


@needs_micro
def test_open_sizes_of_a_check_are_one(tmp_path: Path) -> None:
    a = saved(onnx_scale(shape=["n", 3]), tmp_path / "a.onnx")
    b = saved(tflite_scale(shape=(1, 3), open_shape=(-1, 3)), tmp_path / "b.tflite")
    report = onnxtfl.check(a, b, runtime="micro")
    assert (report.status, report.inputs[0].shape) == ("passed", (1, 3))


def test_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxtfl.runtimes.adapters._is_installed", lambda package: False)
    with pytest.raises(RunError, match=r"tflite-micro is not installed.*'onnxtfl\[micro\]'"):
        MICRO.worker()
