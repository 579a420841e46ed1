"""Running models in child processes: values there and back, crashes, time-outs, missing runtimes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxtfl.runtimes import LITERT, ONNXRUNTIME, TFLITE_RUNTIME, RunError, RunOptions, Worker, process
from onnxtfl.runtimes import worker as worker_script
from tests.harness.named import run_named, run_once
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_model, onnx_scale, saved, tflite_model, tflite_scale

X = np.arange(6, dtype=np.float32).reshape(2, 3)
needs_corpus = pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
needs_tflite_runtime = pytest.mark.skipif(
    not TFLITE_RUNTIME.available(), reason="tflite-runtime is not installed (ONNXTFL_TFLITE_RUNTIME_PYTHON)"
)


def identity(type_: int, shape: tuple[int, ...] = (2, 2)):
    return onnx_model([helper.make_node("Identity", ["x"], ["y"])], [("x", type_, shape)], [("y", type_, shape)])


def test_onnxruntime(tmp_path: Path) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    np.testing.assert_array_equal(run_once(ONNXRUNTIME, path, [X])[0], 2 * X)


def test_open_sessions_are_of_the_same_file(tmp_path: Path) -> None:
    """Sessions stay open for the next run; a file that was written again is loaded again."""
    with ONNXRUNTIME.worker() as worker:
        for factor in (2.0, 2.0, 3.25):
            path = saved(onnx_scale(factor), tmp_path / "m.onnx")
            for kernels in ("builtin", "default", "builtin"):
                np.testing.assert_array_equal(worker.run(path, [X], RunOptions(kernels=kernels))[0], factor * X)


@pytest.mark.parametrize("large", [True, False])
def test_weights_of_large_models_are_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """Packing takes as long as several runs, and these run once."""
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr(process, "LARGE", 10 if large else 1 << 20)
    request = ONNXRUNTIME.worker()._request(saved(onnx_scale(), tmp_path / "m.onnx"), RunOptions())
    options = worker_script.new_session(onnxruntime, request).get_session_options()
    with contextlib.nullcontext() if large else pytest.raises(RuntimeError):
        assert options.get_session_config_entry("session.disable_prepacking") == "1"


@pytest.mark.parametrize("kernels", ["default", "builtin", "reference"])
def test_litert(tmp_path: Path, kernels: str) -> None:
    path = saved(tflite_scale(), tmp_path / "m.tflite")
    np.testing.assert_array_equal(run_once(LITERT, path, [X], RunOptions(kernels=kernels))[0], 2 * X)


@needs_tflite_runtime
@pytest.mark.parametrize("kernels", ["default", "builtin", "reference"])
def test_tflite_runtime(tmp_path: Path, kernels: str) -> None:
    path = saved(tflite_scale(), tmp_path / "m.tflite")
    np.testing.assert_array_equal(run_once(TFLITE_RUNTIME, path, [X], RunOptions(kernels=kernels))[0], 2 * X)


def test_litert_resizes_open_dimensions(tmp_path: Path) -> None:
    path = saved(tflite_scale(shape=(1, 3), open_shape=(-1, 3)), tmp_path / "m.tflite")
    assert run_once(LITERT, path, [np.ones((5, 3), np.float32)])[0].shape == (5, 3)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (TensorProto.BOOL, np.array([[True, False], [False, True]])),
        (TensorProto.INT64, np.array([[2**62, -1], [0, 7]])),
        (TensorProto.FLOAT16, np.array([[0.5, np.inf], [-1, 2]], np.float16)),
        (TensorProto.UINT8, np.array([[0, 255], [1, 2]], np.uint8)),
        (TensorProto.DOUBLE, np.array([[1e300, -0.0], [1, 2]])),
        (TensorProto.BFLOAT16, np.array([[1, 2.5], [-3, 0]], ml_dtypes.bfloat16)),
        (TensorProto.STRING, np.array([["a\0", "zwölf"], ["", "x"]], object)),
    ],
    ids=lambda value: value.dtype.name if isinstance(value, np.ndarray) else "",
)
def test_types_there_and_back(tmp_path: Path, type_: int, value: np.ndarray) -> None:
    result = run_once(ONNXRUNTIME, saved(identity(type_), tmp_path / "m.onnx"), [value])[0]
    assert result.dtype == value.dtype
    assert result.tolist() == value.tolist()


def test_scalars_keep_their_rank(tmp_path: Path) -> None:
    path = saved(identity(TensorProto.FLOAT, ()), tmp_path / "m.onnx")
    assert run_once(ONNXRUNTIME, path, [np.float32(3)])[0].shape == ()
    path = saved(tflite_model("NEG", [("x", (), None)], ("y", ())), tmp_path / "m.tflite")
    assert run_once(LITERT, path, [np.float32(3)])[0] == np.float32(-3)


@pytest.mark.parametrize("value", ["x", "zwölf", "a\0"])
def test_scalar_strings_in_litert(tmp_path: Path, value: str) -> None:
    """The array of a string is no array of pointers."""
    path = saved(tflite_model("RESHAPE", [("x", (), None)], ("y", ()), type_="STRING"), tmp_path / "m.tflite")
    assert run_once(LITERT, path, [np.array(value, object)])[0].tolist() == value


def test_sequences(tmp_path: Path) -> None:
    model = identity(TensorProto.FLOAT)
    model.graph.node[0].op_type = "SequenceConstruct"
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    model.graph.output[0].type.CopyFrom(sequence)
    outputs = run_once(ONNXRUNTIME, saved(model, tmp_path / "m.onnx"), [np.ones((2, 2), np.float32)])
    assert isinstance(outputs[0], list)
    np.testing.assert_array_equal(outputs[0][0], np.ones((2, 2)))


def test_what_a_runtime_refuses(tmp_path: Path) -> None:
    custom = onnx_scale()
    custom.graph.node[0].domain = "nobody"
    custom.opset_import.append(helper.make_opsetid("nobody", 1))
    with pytest.raises(RunError) as error:
        run_once(ONNXRUNTIME, saved(custom, tmp_path / "m.onnx"), [X])
    assert error.value.kind == "unsupported"
    newer = onnx_scale()
    newer.opset_import[0].version = 1000
    with pytest.raises(RunError) as error:
        run_once(ONNXRUNTIME, saved(newer, tmp_path / "n.onnx"), [X])
    assert error.value.kind == "unsupported"
    with pytest.raises(RunError) as error:
        run_once(ONNXRUNTIME, saved(onnx_scale(), tmp_path / "o.onnx"), [X.astype(np.int32)])
    assert error.value.kind == "run"
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("inputs", [[], [X, X]])
def test_another_number_of_inputs(tmp_path: Path, inputs: list[np.ndarray]) -> None:
    for runtime, model in ((ONNXRUNTIME, onnx_scale()), (LITERT, tflite_scale())):
        with pytest.raises(RunError, match="1 inputs"):
            run_once(runtime, saved(model, tmp_path / "m"), inputs)


def worker_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Worker:
    """A worker whose child runs ``body`` for the first request and is the real one after that."""
    script, mark = tmp_path / "child.py", tmp_path / "mark"
    real = os.fspath(process.SCRIPT)
    script.write_text(
        f"import os, sys, runpy\nif not os.path.exists({str(mark)!r}):\n    open({str(mark)!r}, 'w').close()\n"
        f"    sys.stdin.readline()\n    {body}\nrunpy.run_path({real!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(process, "SCRIPT", script)
    return ONNXRUNTIME.worker()


@pytest.mark.parametrize(
    ("body", "telling"),
    [("os.abort()", "crashed"), ("os._exit(3)", "exit code 3"), ("sys.stderr.write('oh dear'); os.abort()", "oh dear")],
)
def test_a_crash_is_a_result_and_the_next_run_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, telling: str
) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with worker_that(tmp_path, monkeypatch, body) as worker:
        with pytest.raises(RunError) as error:
            worker.run(path, [X])
        assert error.value.kind == "crash"
        assert telling in str(error.value)
        np.testing.assert_array_equal(worker.run(path, [X])[0], 2 * X)


def test_a_hang_is_a_result_and_the_next_run_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with worker_that(tmp_path, monkeypatch, "import time; time.sleep(60)") as worker:
        started = time.monotonic()
        with pytest.raises(RunError) as error:
            worker.run(path, [X], RunOptions(time_limit=0.3))
        assert error.value.kind == "timeout"
        assert time.monotonic() - started < 10
        np.testing.assert_array_equal(worker.run(path, [X])[0], 2 * X)


def test_runs_begin_without_waiting_and_are_read_in_any_order(tmp_path: Path) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with ONNXRUNTIME.worker() as worker:
        worker.load(path)
        first, second = (worker.submit(path, [[k * X]]) for k in (1, 2))
        np.testing.assert_array_equal(second.result()[0][0], 4 * X)
        np.testing.assert_array_equal(first.result()[0][0], 2 * X)
        assert first.seconds > 0


def test_a_model_that_does_not_load_ahead_is_reported_by_its_run(tmp_path: Path) -> None:
    bad, good = saved(b"junk", tmp_path / "bad.tflite"), saved(tflite_scale(), tmp_path / "good.tflite")
    with LITERT.worker() as worker:
        worker.load(bad)
        worker.load(good)
        with pytest.raises(RunError):
            worker.run(bad, [X])
        np.testing.assert_array_equal(worker.run(good, [X])[0], 2 * X)


def test_a_crash_fails_all_runs_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with worker_that(tmp_path, monkeypatch, "os.abort()") as worker:
        for run in [worker.submit(path, [[X]]) for _ in range(2)]:
            with pytest.raises(RunError) as error:
                run.result()
            assert error.value.kind == "crash"
        np.testing.assert_array_equal(worker.run(path, [X])[0], 2 * X)


def test_a_run_that_is_not_needed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with worker_that(tmp_path, monkeypatch, "import time; time.sleep(60)") as worker:
        started = time.monotonic()
        run = worker.submit(path, [[X]])
        while not (tmp_path / "mark").exists():
            time.sleep(0.01)
        run.cancel()
        np.testing.assert_array_equal(worker.run(path, [X])[0], 2 * X)
        assert time.monotonic() - started < 30


def test_further_runs_are_spared_where_the_first_was_slow(tmp_path: Path) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with ONNXRUNTIME.worker() as worker:
        assert len(worker.run_steps(path, [[X], [X]], RunOptions(spare=1e-9))) == 1
        assert len(worker.run_steps(path, [[X], [X]], RunOptions(spare=60))) == 2


def test_what_the_child_prints_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    np.testing.assert_array_equal(run_once(ONNXRUNTIME, path, [X])[0], 2 * X)


def test_a_crash_while_another_process_holds_the_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)']); os.abort()"
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    started = time.monotonic()
    with worker_that(tmp_path, monkeypatch, body) as worker:
        with pytest.raises(RunError, match="crashed"):
            worker.run(path, [X])
        np.testing.assert_array_equal(worker.run(path, [X])[0], 2 * X)
    assert time.monotonic() - started < 25


def test_a_worker_leaves_nothing_behind(tmp_path: Path) -> None:
    path = saved(onnx_scale(), tmp_path / "m.onnx")
    with ONNXRUNTIME.worker() as worker:
        worker.run(path, [X], RunOptions())
        directory, child = worker._files, worker._process
    assert directory is not None
    assert not directory.path.exists()
    assert child is not None
    assert child.poll() is not None


def test_a_runtime_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXTFL_TFLITE_RUNTIME_PYTHON", str(tmp_path / "no-python"))
    assert not TFLITE_RUNTIME.available()
    with pytest.raises(RunError) as error:
        run_once(TFLITE_RUNTIME, saved(tflite_scale(), tmp_path / "m.tflite"), [X])
    assert error.value.kind == "unavailable"
    with pytest.raises(RunError) as error, Worker("onnxruntime", os.fspath(tmp_path / "no-python")) as worker:
        worker.start()
    assert error.value.kind == "unavailable"


def test_versions_are_known_without_importing() -> None:
    code = (
        "import sys\nfrom onnxtfl.runtimes import RUNTIMES\nprint([r.version() for r in RUNTIMES.values()])\n"
        "assert not {'onnxruntime', 'ai_edge_litert', 'tflite_runtime', 'onnx'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_corpus
@pytest.mark.parametrize("name", ["bert_tiny", "int_math_hash_embed", "nonzero_masking", "if_script"])
def test_corpus_outputs(name: str) -> None:
    arrays = np.load(CORPUS / "onnx" / name / "io.npz")
    inputs = {key[3:]: arrays[key] for key in arrays if key.startswith("in_")}
    outputs = run_named(ONNXRUNTIME, CORPUS / "onnx" / name / "model.onnx", inputs)
    for key, value in outputs.items():
        np.testing.assert_allclose(value, arrays[f"out_{key}"], rtol=1e-3, atol=1e-4)
