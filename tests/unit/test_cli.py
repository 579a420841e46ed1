"""The commands: exit codes, one-line errors, tables, and how fast help is."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtfl import output
from onnxtfl.cli import commands, progress, running
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.summary import FloatOp, QuantizationSummary
from tests.unit.fake_pipeline import FakePipeline, install
from tests.unit.tiny_models import onnx_model, onnx_scale, onnx_unknown_op, saved, tflite_scale


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    return install(monkeypatch, tflite_scale())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return saved(onnx_scale(), tmp_path / "m.onnx")


def call(command: click.Command, *words: object) -> int:
    """The exit code of a command."""
    return running.exit_code(command, running.spread_lists([str(word) for word in words]))


def onnx2tfl(*words: object) -> int:
    return call(commands.onnx2tfl, *words)


def onnxtfl(*words: object) -> int:
    return call(commands.onnxtfl, *words)


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    """What stands on stderr: one line that begins with "error: "."""
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert "Traceback" not in told
    return told


def test_convert(fake: FakePipeline, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert onnx2tfl(source) == 0
    assert source.with_suffix(".tflite").read_bytes() == fake.data
    table = capsys.readouterr().out
    for expected in ("x  float32 [2,3]", "y  float32 [2,3]", "1: 1 Mul", "1: 1 MUL", "peak memory", "passed"):
        assert expected in table
    assert "y  largest error 0 absolute, 0 relative" in table
    assert not any(line.endswith(" ") for line in table.splitlines())


def test_a_quantized_model_says_what_computes_on_floats(
    fake: FakePipeline, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    islands = [FloatOp("SIN", f"y{k}", (f"sin{k}",), "Sin", True, "SIN has no quantized kernel") for k in range(2)]
    own = FloatOp("ABS", "z", ("abs",), "Abs", False, "it is float in the source")
    biases, changed = (("b", "0.1 became 0.2"),), tuple((f"t{k}", "1 became 2") for k in range(10))
    fake.report.quantization = QuantizationSummary({"CONV_2D": 3, "ADD": 2}, {}, (*islands, own), biases, changed)
    assert onnx2tfl(source, "--no-check") == 0
    printed = capsys.readouterr().out.splitlines()
    start = next(k for k, line in enumerate(printed) if line.startswith("quantized"))
    assert [line.partition("  ")[2].strip() for line in printed[start : start + 6]] == [
        "5 ops use integer kernels, 3 float kernels",
        "float, as in the source: 1 ABS",
        "1 bias with another scale: b",
        "10 tensors requantized: t0, t1, t2, t3, t4, t5, t6, t7, and 2 more",
        "2 ops that the source quantizes compute on floats:",
        "2 Sin: SIN has no quantized kernel",
    ]
    assert printed[start + 4].startswith("warning")


def test_output_and_options(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    words = ["--rename", "x:0:image", "-o", tmp_path / "o.tflite", "--input-shape", "x:2,3", "--input-shape", "a:0:1"]
    words += ["--io-layout", "source", "--io-layout", "x:1:channels-first"]
    words += ["--inputs", "x", "w", "--outputs", "y", "--float64", "error", "--min-runtime", "2.16", "--no-check"]
    assert onnx2tfl(source, *words) == 0
    assert (tmp_path / "o.tflite").exists()
    options = fake.options
    assert options is not None
    assert options.input_shapes == {"x": (2, 3), "a:0": (1,)}
    assert (options.inputs, options.outputs, options.float64) == (["x", "w"], ["y"], "error")
    assert options.min_runtime == "2.16"
    assert options.rename == {"x:0": "image"}
    assert options.io_layout == {"*": "source", "x:1": "channels-first"}


def test_data_for_the_check(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "data.npz", x=np.ones((2, 3), np.float32))
    assert onnx2tfl(source, "--check-data", tmp_path / "data.npz", "-v") == 0
    assert "given" in capsys.readouterr().out
    assert onnx2tfl(source, "--check-data", tmp_path / "none.npz") == 2
    assert "cannot read" in one_error(capsys)


def test_into_a_folder(fake: FakePipeline, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    for folder in ("new/", "new/sub/", "there"):
        assert onnx2tfl(source, "-o", f"{tmp_path}/{folder}", "--no-check") == 0
        written = tmp_path / folder / "m.tflite"
        assert written.read_bytes() == fake.data
        assert os.fspath(written) in "".join(capsys.readouterr().out.split())


def test_tfl2onnx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, onnx_scale().SerializeToString())
    source = saved(tflite_scale(), tmp_path / "m.tflite")
    assert call(commands.tfl2onnx, source, "--opset", "17", "--check") == 0
    assert (tmp_path / "m.onnx").exists()
    assert fake.options is not None
    assert fake.options.opset == 17
    assert call(commands.tfl2onnx, source, "--opset", "12") == 2


def test_the_check_fails(fake: FakePipeline, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.data = tflite_scale(3.0)
    assert onnx2tfl(source) == 3
    assert not source.with_suffix(".tflite").exists()
    captured = capsys.readouterr()
    assert "nothing written" in " ".join(captured.out.split())
    assert "6 of 6 elements differ" in " ".join(captured.out.split())
    assert captured.err.startswith("error: the check of the converted model failed: output 'y'")
    assert onnx2tfl(source, "--keep-failed") == 3
    assert source.with_suffix(".tflite").exists()
    assert "is kept in" in capsys.readouterr().err
    assert onnx2tfl(source, "--no-check") == 0


def test_not_checked(fake: FakePipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = onnx_unknown_op()
    source = saved(unknown, tmp_path / "m.onnx")
    assert onnx2tfl(source) == 0
    assert "not checked: the first model does not run: onnxruntime" in capsys.readouterr().out
    assert onnx2tfl(source, "--check", "-o", tmp_path / "n.tflite") == 3
    assert not (tmp_path / "n.tflite").exists()


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["m.onnx", "more"],
        ["m.onnx", "--nothing"],
        ["m.onnx", "--io-layout", "NHWC"],
        ["m.onnx", "--io-layout", ":source"],
        ["m.onnx", "--input-shape", "1,3"],
        ["m.onnx", "--input-shape", "x:1,-3"],
        ["m.onnx", "--rtol", "-1"],
        ["m.onnx", "--seed", "one"],
        ["m.onnx", "--inputs"],
        ["m.onnx", "--min-runtime", "new"],
    ],
    ids=" ".join,
)
def test_usage(fake: FakePipeline, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert onnx2tfl(*words) == 2
    one_error(capsys)


def test_bad_files(fake: FakePipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert onnx2tfl(tmp_path / "none.onnx") == 1
    assert "none.onnx" in one_error(capsys)
    assert onnx2tfl(saved(b"", tmp_path / "m.onnx")) == 1
    assert "is empty" in one_error(capsys)
    assert onnx2tfl(saved(tflite_scale(), tmp_path / "m.onnx")) == 1
    assert "a TFLite model, not an ONNX model" in one_error(capsys)
    assert onnx2tfl(tmp_path) == 2
    assert f"{tmp_path} is a folder, and is converted into a folder; name it with -o DIR" in one_error(capsys)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


@pytest.mark.parametrize(
    ("error", "code", "telling"),
    [
        (UnsupportedError("no way\nat all"), 1, "no way at all"),
        (MemoryError(), 1, "out of memory"),
        (RecursionError(), 1, "nested too deeply"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (AssertionError("two\nlines"), 1, "AssertionError: two lines; please report it"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_are_one_line(
    fake: FakePipeline, source: Path, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, telling: str
) -> None:
    def fail() -> None:
        raise error

    fake.fail = fail
    assert onnx2tfl(source) == code
    assert telling in one_error(capsys)
    assert not source.with_suffix(".tflite").exists()


def test_verbose_shows_where_an_internal_error_is(
    fake: FakePipeline, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise AssertionError

    fake.fail = fail
    assert onnx2tfl(source, "-v") == 1
    assert "Traceback" in capsys.readouterr().err


def test_check_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = saved(onnx_scale(), tmp_path / "a.onnx"), saved(tflite_scale(), tmp_path / "b.tflite")
    wrong = saved(tflite_scale(2.1), tmp_path / "c.tflite")
    assert onnxtfl("check", a, b) == 0
    assert "passed" in capsys.readouterr().out
    assert onnxtfl("check", a, b, "-v", "--seed", "3") == 0
    assert "x  float32 [2,3]: normal" in capsys.readouterr().out
    assert onnxtfl("check", a, wrong) == 3
    assert "c.tflite failed: output 'y'" in one_error(capsys)
    assert onnxtfl("check", a, wrong, "--rtol", "0.2") == 0
    assert onnxtfl("check", a, tmp_path / "none.tflite") == 1
    assert onnxtfl("check", a) == 2


def test_what_cannot_be_checked_is_not_fine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = onnx_unknown_op()
    assert onnxtfl("check", saved(unknown, tmp_path / "a.onnx"), saved(tflite_scale(), tmp_path / "b.tflite")) == 1
    assert "not checked" in one_error(capsys)


def test_lists_of_names() -> None:
    spread = running.spread_lists
    assert spread(["m", "--inputs", "a", "b", "-o", "c"]) == ["m", "--inputs", "a", "--inputs", "b", "-o", "c"]
    assert spread(["--inputs", "a", "--", "m"]) == ["--inputs", "a", "--", "m"]
    assert spread(["--inputs", "a", "--outputs", "b", "c"]) == ["--inputs", "a", "--outputs", "b", "--outputs", "c"]
    assert spread(["m", "--inputs"]) == ["m", "--inputs"]


@pytest.mark.parametrize(
    ("model", "suffix", "expected"),
    [("a/m.onnx", ".tflite", "a/m.tflite"), ("m.v1", ".tflite", "m.v1.tflite"), ("m.TFLITE", ".onnx", "m.onnx")],
)
def test_the_default_output(model: str, suffix: str, expected: str) -> None:
    assert Path(output.beside(model, suffix)) == Path(expected)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_after_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(progress, "DELAY", 0.2)
    with progress.progress() as step:
        step("read")
    assert shown.getvalue() == ""
    with progress.progress() as step:
        step("layout")
        time.sleep(0.4)
        step("write")  # the line is removed, so that an error can be printed
        assert shown.getvalue().endswith("\r\x1b[K")
    assert "layout  0 s" in shown.getvalue() and "start" not in shown.getvalue()
    assert shown.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("quiet", [True, False])
def test_no_progress_but_on_a_terminal(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.01)
    if quiet:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress(quiet) as step:
        step("layout")
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_progress_of_several_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error of a model begins a line."""
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    monkeypatch.setattr(progress, "DELAY", 0.05)
    for k in range(2):
        (tmp_path / f"{k}.onnx").write_bytes(b"no model")
    onnx2tfl(tmp_path, "-o", tmp_path / "out", "--jobs", "1")
    assert shown.getvalue().count("\x1b[Kerror: ") + shown.getvalue().count("\nerror: ") == 2


def run_module(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{code}\nimport sys\nsys.argv[0] = 'onnx2tfl'\nfrom onnxtfl.cli import onnx2tfl\nonnx2tfl()"
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words", [["onnx2tfl"], ["tfl2onnx"], ["check"], ["inspect"], ["explain"], ["ops"], []], ids=str
)
def test_help_is_readable(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert onnxtfl(*words, "--help") == 0
    page = capsys.readouterr().out
    assert max(map(len, page.splitlines())) <= 80
    assert ("Examples:" in page) == (words not in (["inspect"], ["explain"], ["ops"]))
    if words in (["onnx2tfl"], ["tfl2onnx"]):
        titles = ["Result:", "Shapes and parts:", "Quantized models:", "Check:", "Several models:"]
        assert sorted(titles, key=page.index) == titles


def test_each_option_is_in_the_help_once() -> None:
    for command in (commands.onnx2tfl, commands.tfl2onnx, commands.onnxtfl.commands["check"]):
        page = command.get_help(click.Context(command))
        for option in (p for p in command.params if isinstance(p, click.Option)):
            assert len(re.findall(rf"^  (-\w, )?{option.opts[-1]}(?![\w-])", page, re.MULTILINE)) == 1, option.opts


def test_completion_by_the_shell() -> None:
    environment = {
        **os.environ,
        "_ONNX2TFL_COMPLETE": "bash_complete",
        "COMP_WORDS": "onnx2tfl --io",
        "COMP_CWORD": "1",
    }
    code = "from onnxtfl.cli import onnx2tfl; onnx2tfl()"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,--io-layout\nplain,--io-dtype\n"


def test_help_is_light() -> None:
    listing = "import atexit, sys\natexit.register(lambda: print('MODULES', sorted(sys.modules)))"
    done = run_module("--help", code=listing)
    assert done.returncode == 0
    text, _, modules = done.stdout.partition("MODULES")
    for option in (
        "--io-layout",
        "--quantized-io",
        "--input-shape",
        "--keep-failed",
        "--min-runtime",
        "--inputs NAME...",
        "Exit codes",
    ):
        assert option in text
    loaded = {name.strip(" '[]\n").partition(".")[0] for name in modules.split(",")}
    assert not loaded & {"numpy", "onnx", "jinja2", "onnxruntime", "ai_edge_litert", "highspy", "tflite"}
    assert run_module("--version").returncode == 0


def test_a_conversion_imports_only_what_it_runs(tmp_path: Path) -> None:
    listing = "import atexit, sys\natexit.register(lambda: print('MODULES', *sys.modules))"
    source = saved(onnx_scale(), tmp_path / "m.onnx")
    done = run_module(str(source), "-o", str(tmp_path / "m.tflite"), "--no-check", "--no-load", code=listing)
    assert done.returncode == 0
    loaded = done.stdout.partition("MODULES")[2].split()
    contrib = ("mappings.contrib.microsoft.", "mappings.contrib.ml.")
    others = ("runtimes", "checking", "inputs", "passes.recognize", *contrib)
    back = ("cli.commands", "formats.onnx.writer", "formats.tflite.reader", "formats.tflite.states", "targets.onnx")
    assert "onnxtfl.pipeline" in loaded
    assert not [name for name in loaded if name.startswith(tuple(f"onnxtfl.{other}" for other in (*others, *back)))]
    rules = [name for name in loaded if name.startswith("onnxtfl.mappings.") and name.count(".") == 3]
    assert len(rules) <= 3, rules
    assert len([name for name in loaded if name.startswith("onnxtfl.")]) <= 365


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_killed_conversion_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    source = saved(onnx_scale(), tmp_path / "m.onnx")
    code = (
        "import sys, time\nimport onnxtfl.pipeline as p\n"
        "def slow(model, out, options):\n    out.write(b'half')\n    out.flush()\n"
        "    print('now', flush=True)\n    time.sleep(60)\n"
        "p.onnx_to_tflite = slow\nfrom onnxtfl.cli import onnx2tfl\nonnx2tfl()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(source)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"now\n"
    assert len(list(tmp_path.iterdir())) == 2
    child.send_signal(number)
    assert child.wait(20) == 130
    assert child.stderr is not None
    assert child.stderr.read() == b"error: interrupted\n"
    child.stdout.close()
    child.stderr.close()
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_pipe_that_closes_early(tmp_path: Path) -> None:
    for name, model in (("a.onnx", onnx_scale()), ("b.tflite", tflite_scale())):
        saved(model, tmp_path / name)
    code = "from onnxtfl.cli import main\nmain()"
    words = ["check", str(tmp_path / "a.onnx"), str(tmp_path / "b.tflite")]
    child = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert b"Traceback" not in child.stderr.read()
    child.stderr.close()
    child.wait(20)


def test_tables_on_a_terminal(
    fake: FakePipeline, source: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.report.inputs = [("evil\x1b[2Jname", "float32", ("2", "3"))]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert onnx2tfl(source) == 0
    table = capsys.readouterr().out
    assert "evil?[2Jname" in table
    assert "passed" in table


def test_values_of_a_model_that_numpy_warns_of(tmp_path: Path) -> None:
    """Nothing but the report is printed: the aspect ratio of an axis without elements is infinite."""
    nodes = [helper.make_node("Resize", ["x", "", "", "s"], ["y"], keep_aspect_ratio_policy="not_larger")]
    model = onnx_model(nodes, [("x", TensorProto.FLOAT, (1, 3, 0, 4))], [("y", TensorProto.FLOAT, None)])
    model.graph.initializer.append(numpy_helper.from_array(np.int64([1, 3, 5, 5]), "s"))
    words = ["onnx2tfl", os.fspath(saved(model, tmp_path / "m.onnx")), "--no-check", "--no-load", "-q"]
    done = subprocess.run([sys.executable, "-m", "onnxtfl", *words], capture_output=True, check=False, timeout=60)
    assert done.stderr == b""
