"""Several models in one call: the structure of folders, what is up to date, failures, crashes, clusters, streams."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import onnxtfl
from onnxtfl import CheckReport, api
from onnxtfl.cli import commands, many, running
from onnxtfl.errors import OnnxtflError, RuntimeUnavailableError, UsageError
from onnxtfl.many import OwnProcesses
from tests.unit.tiny_models import onnx_scale, saved, tflite_scale


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A folder with two models, one of them in a folder of its own, and a file that is no model."""
    (tmp_path / "zoo" / "sub").mkdir(parents=True)
    saved(onnx_scale(), tmp_path / "zoo" / "a.onnx")
    saved(onnx_scale(3.0), tmp_path / "zoo" / "sub" / "b.onnx")
    saved(b"junk", tmp_path / "zoo" / "bad.onnx")
    return tmp_path / "zoo"


def here(models, directory, **options):
    """Convert in a thread, and without the check unless it is asked for."""
    with ThreadPoolExecutor(1) as pool:
        return onnxtfl.convert_many(models, directory, executor=pool, **{"check": False, **options})


def statuses(outcomes) -> list[str]:
    return [outcome.status for outcome in outcomes]


def test_the_structure_of_a_folder_is_kept_and_a_failure_stops_nothing(zoo: Path, tmp_path: Path) -> None:
    outcomes = here(zoo, tmp_path / "out")
    assert [(o.source.name, o.status) for o in outcomes] == [
        ("a.onnx", "converted"),
        ("bad.onnx", "failed"),
        ("b.onnx", "converted"),
    ]
    assert (tmp_path / "out" / "sub" / "b.tflite").stat().st_size == outcomes[2].size
    assert [o.exit_code for o in outcomes] == [0, 1, 0]
    assert "bad.onnx" in str(outcomes[1].error)


def test_what_is_up_to_date_is_left_out(zoo: Path, tmp_path: Path) -> None:
    (zoo / "bad.onnx").unlink()
    out = tmp_path / "out"
    assert statuses(here(zoo, out)) == ["converted", "converted"]
    assert statuses(here(zoo, out)) == ["up to date", "up to date"]
    assert statuses(here(zoo, out, force=True)) == ["converted", "converted"]
    assert statuses(here(zoo, out, float64="error")) == ["converted", "converted"]  # other options
    saved(onnx_scale(4.0), zoo / "a.onnx")
    assert statuses(here(zoo, out, float64="error")) == ["converted", "up to date"]
    (out / "sub" / "b.tflite").unlink()
    assert statuses(here(zoo, out, float64="error")) == ["up to date", "converted"]


def test_an_interrupted_run_goes_on(zoo: Path, tmp_path: Path) -> None:
    def stop(outcome, count) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        here(zoo, tmp_path / "out", on_outcome=stop)
    with (tmp_path / "out" / ".onnxtfl.jsonl").open("a") as journal:
        journal.write('{"target": "half a li')
    assert "up to date" in statuses(here(zoo, tmp_path / "out"))


def test_former_names_and_data_of_several_sets(tmp_path: Path) -> None:
    model = saved(onnx_scale(), tmp_path / "a.onnx")
    data = ({"x": np.full((2, 3), value, np.float32)} for value in (1, 2))
    with pytest.warns(DeprecationWarning, match="`steps` is now called `runs`"):
        (outcome,) = onnxtfl.convert_many(model, tmp_path / "out", steps=2, check_data=data)
    assert (outcome.status, outcome.check) == ("converted", "passed")


def test_worker_processes(zoo: Path, tmp_path: Path) -> None:
    seen: list[str] = []
    outcomes = onnxtfl.convert_many(
        zoo, tmp_path / "out", jobs=2, on_outcome=lambda outcome, count: seen.append(f"{outcome.source.name} {count}")
    )
    assert [(o.status, o.check) for o in outcomes] == [("converted", "passed"), ("failed", ""), ("converted", "passed")]
    assert sorted(seen) == ["a.onnx 3", "b.onnx 3", "bad.onnx 3"]


def test_a_worker_that_crashes_loses_its_own_model_only() -> None:
    with OwnProcesses(1) as pool:
        crashed, good = pool.submit(os._exit, 3), pool.submit(abs, -2)
        with pytest.raises(OnnxtflError, match="crashed; it may have run out of memory: use fewer workers"):
            crashed.result(60)
        assert good.result(60) == 2


def test_a_cluster_of_two_workers(zoo: Path, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs onnxtfl[dask]")
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(host="127.0.0.1", **settings) as cluster:
        outcomes = onnxtfl.convert_many(
            zoo, tmp_path / "out", executor="dask", address=cluster.scheduler_address, check=False
        )
    assert statuses(outcomes) == ["converted", "failed", "converted"]
    assert (tmp_path / "out" / "sub" / "b.tflite").exists()


def test_workers_run_neither_the_script_nor_modules_of_the_current_folder(zoo: Path, tmp_path: Path) -> None:
    """A script without ``if __name__ == "__main__"``, next to files with names of the standard library."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "types.py").write_text("raise AssertionError")
    script = tmp_path / "script.py"
    script.write_text(
        f"print('begin')\nimport onnxtfl\n"
        f"print(*(o.status for o in onnxtfl.convert_many({os.fspath(zoo)!r}, 'out', check=False, jobs=1)), sep=', ')\n"
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    assert done.stdout == "begin\nconverted, failed, converted\n", done.stderr


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        ({"jobs": 0}, "jobs cannot be 0"),
        ({"executor": "threads"}, "executor cannot be 'threads'"),
        ({"executor": "dask"}, "needs the address of a scheduler; name it with address"),
        ({"address": "tcp://127.0.0.1:1"}, "use it with executor='dask'"),
        ({"to": "keras"}, "to cannot be 'keras'"),
        ({"opset": 17}, "the conversion to tflite has no parameter 'opset'"),
        ({"rtol": "a"}, "rtol cannot be 'a'"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(zoo: Path, tmp_path: Path, options, telling: str) -> None:
    with pytest.raises(UsageError) as error:
        onnxtfl.convert_many(zoo, tmp_path / "out", **options)
    assert telling in str(error.value)


def test_a_scheduler_that_is_not_there(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")

    def refuse(*words: object, **options: object) -> None:
        raise OSError("refused")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(RuntimeUnavailableError, match="at host:1: refused; start one, or correct address"):
        onnxtfl.convert_many(zoo, tmp_path / "out", executor="dask", address="host:1")


def test_two_sources_of_one_result(zoo: Path, tmp_path: Path) -> None:
    saved(onnx_scale(), tmp_path / "a.onnx")
    with pytest.raises(UsageError, match=r"would both become .*a\.tflite; convert them into different folders"):
        here([zoo, tmp_path / "a.onnx"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"there is no \.onnx file in"):
        here(tmp_path / "empty", tmp_path / "out")


def test_on_the_command_line(zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(zoo), "-o", str(tmp_path / "out"), "--no-check", "--jobs", "1"]
    assert running.exit_code(commands.onnx2tfl, words) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "3 models: 2 converted, 1 failed"
    assert all(len(line) <= 80 for line in captured.out.splitlines())
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    (zoo / "bad.onnx").unlink()
    assert running.exit_code(commands.onnx2tfl, [*words, "-q"]) == 0
    assert capsys.readouterr().out == ""
    assert running.exit_code(commands.onnx2tfl, [str(zoo)]) == 2
    assert "converted into a folder; name it with -o DIR" in capsys.readouterr().err


def test_sizes_that_are_excluded_have_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    excluded = CheckReport("passed", "", excluded="at " + "; ".join(f"x{k}:[3,1,1]" for k in range(9)))
    made = replace(onnxtfl.onnx_to_tflite(saved(onnx_scale(), tmp_path / "m.onnx"), check=False), check=excluded)
    monkeypatch.setattr(api, "onnx_to_tflite", lambda *_, **__: made)
    (outcome,) = here(tmp_path / "m.onnx", tmp_path / "out")
    many._show([outcome])
    _, *lines, _ = capsys.readouterr().out.splitlines()
    assert " ".join(line.strip() for line in lines) == f"except {excluded.excluded}"
    assert all(len(line) <= 80 for line in lines)


def run_module(*words: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "onnxtfl", *words], input=data, capture_output=True, check=False)


def test_standard_input_and_output(tmp_path: Path) -> None:
    done = run_module("onnx2tfl", "-", "-o", "-", data=onnx_scale().SerializeToString())
    assert done.returncode == 0
    assert done.stdout[4:8] == b"TFL3"
    assert b"- -> -" in done.stderr
    back = run_module("tfl2onnx", "-", "-o", str(tmp_path / "new" / "m.onnx"), "-q", "--no-check", data=done.stdout)
    assert (back.returncode, back.stdout, back.stderr) == (0, b"", b"")
    assert (tmp_path / "new" / "m.onnx").exists()


def test_into_a_folder_that_exists(tmp_path: Path) -> None:
    source = saved(tflite_scale(), tmp_path / "m.tflite")
    (tmp_path / "out").mkdir()
    assert running.exit_code(commands.tfl2onnx, [str(source), "-o", str(tmp_path / "out"), "--no-check", "-q"]) == 0
    assert (tmp_path / "out" / "m.onnx").exists()
    shutil.rmtree(tmp_path / "out")
