"""The public functions: what they return, what they write, and that nothing half-done stays."""

from __future__ import annotations

import dataclasses
import inspect
import operator
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl import (
    CheckFailedError,
    InvalidModelError,
    OnnxtflError,
    OutputError,
    UnsupportedError,
    UsageError,
    conversion_check,
    platform_calls,
)
from onnxtfl.checking.settings import Settings
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.option_table import ARGUMENTS, FUNCTIONS, options_of
from onnxtfl.options import Options
from tests.unit.fake_pipeline import FakePipeline, install
from tests.unit.tiny_models import onnx_model, onnx_scale, onnx_unknown_op, saved, tflite_scale


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakePipeline:
    return install(monkeypatch, tflite_scale())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return saved(onnx_scale(), tmp_path / "in" / "m.onnx")


def files(tmp_path: Path) -> list[str]:
    """The files in the output directory, hidden ones too."""
    return sorted(path.name for path in (tmp_path / "out").iterdir())


def test_import_is_lazy() -> None:
    code = "import onnxtfl, sys; print([m for m in sys.modules if m.partition('.')[0] in {!r}])"
    heavy = {"onnx", "numpy", "onnxruntime", "ai_edge_litert", "highspy", "jinja2", "click", "flatbuffers", "tflite"}
    done = subprocess.run([sys.executable, "-c", code.format(heavy)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_public_is_there() -> None:
    for name in onnxtfl.__all__:
        assert getattr(onnxtfl, name).__doc__, name
    assert onnxtfl.__version__
    assert set(onnxtfl.__all__) <= set(dir(onnxtfl))
    with pytest.raises(AttributeError):
        onnxtfl.nothing  # noqa: B018


def test_to_a_path(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    steps: list[str] = []
    conversion = onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "m.tflite", on_progress=steps.append)
    assert (conversion.path, conversion.data) == (tmp_path / "out" / "m.tflite", None)
    assert conversion.path.read_bytes() == fake.data
    assert files(tmp_path) == ["m.tflite"]
    assert steps == ["read", "check"]
    report = conversion.report
    assert [(t.name, t.dtype, t.shape) for t in report.inputs] == [("x", "float32", (2, 3))]
    assert (report.ops_before, report.ops_after) == ({"Mul": 1}, {"MUL": 1})
    assert (report.size, report.source_size) == (len(fake.data), source.stat().st_size)
    assert report.seconds > 0
    assert report.peak_memory is None or report.peak_memory > 1_000_000
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.check.outputs[0].max_abs == 0


def test_progress_tells_how_much_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxtfl.pipeline_run.TELL_EVERY", -1.0)
    weights = np.random.default_rng(0).normal(size=(512, 1024)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = onnx_model(nodes, [("x", TensorProto.FLOAT, (1, 512))], [("y", TensorProto.FLOAT, None)], {"w": weights})
    steps: list[str] = []
    made = onnxtfl.onnx_to_tflite(model, on_progress=steps.append, check=False)
    assert {"read", "lift", "layout", "write", "write 2 MB"} <= set(steps)
    onnxtfl.tflite_to_onnx(made.data or b"", on_progress=steps.append, check=False)
    assert steps.count("write 2 MB") >= 2


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "proto"])
def test_from_everything_to_bytes(fake: FakePipeline, source: Path, kind: str) -> None:
    model = {"path": source, "str": str(source), "bytes": source.read_bytes(), "proto": onnx_scale()}[kind]
    conversion = onnxtfl.onnx_to_tflite(model)
    assert (conversion.path, conversion.data) == (None, fake.data)
    assert conversion.check is not None
    assert conversion.check.ok


def test_options_arrive(fake: FakePipeline, source: Path) -> None:
    onnxtfl.onnx_to_tflite(
        source, check=False, input_shapes={"x": (4, 3)}, io_layout="channels-last", float64="error", min_runtime="2.16"
    )
    options = fake.options
    assert options is not None
    assert (options.input_shapes, options.io_layout) == ({"x": (4, 3)}, "channels-last")
    assert (options.float64, options.min_runtime) == ("error", "2.16")


def test_the_way_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = install(monkeypatch, onnx_scale().SerializeToString())
    source = saved(tflite_scale(), tmp_path / "m.tflite")
    conversion = onnxtfl.tflite_to_onnx(source, tmp_path / "m.onnx", opset=17, check="require")
    assert (tmp_path / "m.onnx").read_bytes() == fake.data
    assert conversion.check is not None
    assert conversion.check.ok
    assert fake.options is not None
    assert fake.options.opset == 17
    with pytest.raises(UsageError, match="opset cannot be 12; use an integer from 13 to 24"):
        onnxtfl.tflite_to_onnx(source, opset=12)


def test_a_failed_check_writes_nothing(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    fake.data = tflite_scale(3.0)
    target = tmp_path / "out" / "m.tflite"
    target.write_bytes(b"what was there before")
    with pytest.raises(CheckFailedError) as error:
        onnxtfl.onnx_to_tflite(source, target)
    assert target.read_bytes() == b"what was there before"
    assert files(tmp_path) == ["m.tflite"]
    assert error.value.exit_code == 3
    assert error.value.conversion.path is None
    assert error.value.conversion.check.status == "failed"
    with pytest.raises(CheckFailedError):
        onnxtfl.onnx_to_tflite(source)


def test_keep_failed(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    fake.data = tflite_scale(3.0)
    with pytest.raises(CheckFailedError) as error:
        onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "m.tflite", keep_failed=True)
    assert files(tmp_path) == ["m.tflite"]
    assert error.value.conversion.path == tmp_path / "out" / "m.tflite"
    assert onnxtfl.onnx_to_tflite(source, check=False).data == fake.data


def test_what_cannot_be_checked_goes_through_unless_required(fake: FakePipeline, tmp_path: Path) -> None:
    unknown = onnx_unknown_op()
    conversion = onnxtfl.onnx_to_tflite(unknown, tmp_path / "m.tflite")
    assert conversion.check is not None
    assert conversion.check.status == "not checked"
    assert (tmp_path / "m.tflite").exists()
    with pytest.raises(CheckFailedError, match="not checked"):
        onnxtfl.onnx_to_tflite(unknown, tmp_path / "n.tflite", check="require")
    assert not (tmp_path / "n.tflite").exists()


def raising(error: BaseException):
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (UnsupportedError("no"), UnsupportedError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
        (RecursionError(), RecursionError),
        (OSError(28, "No space left on device"), OutputError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_nothing_stays_after_an_error(
    fake: FakePipeline, source: Path, tmp_path: Path, error: BaseException, becomes: type[BaseException]
) -> None:
    fake.fail = raising(error)
    with pytest.raises(becomes):
        onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "m.tflite")
    assert files(tmp_path) == []


def test_nothing_stays_after_an_interrupted_check(
    fake: FakePipeline, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxtfl.checking.session.check_models", lambda *args: raising(KeyboardInterrupt())())
    with pytest.raises(KeyboardInterrupt):
        onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "m.tflite")
    assert files(tmp_path) == []


def test_a_sidecar_is_moved_too(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    fake.sidecar = b"weights"
    onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "m.tflite", check=False)
    assert files(tmp_path) == ["m.tflite", "m.tflite.data"]
    with pytest.raises(OutputError, match="does not fit into one file"):
        onnxtfl.onnx_to_tflite(source, check=False)


def test_places_that_cannot_be_written(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    for target in (source / "m.tflite", f"{source}/"):
        with pytest.raises(OutputError) as error:
            onnxtfl.onnx_to_tflite(source, target)
        assert "\n" not in str(error.value)
        assert error.value.exit_code == 1
    assert files(tmp_path) == []


def test_a_folder_gets_a_file_with_the_name_of_the_model(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    made = onnxtfl.onnx_to_tflite(source, tmp_path / "out", check=False)
    assert made.path == tmp_path / "out" / "m.tflite"
    assert onnxtfl.onnx_to_tflite(source.read_bytes(), f"{tmp_path}/out/new/", check=False).path is not None
    assert sorted(path.name for path in (tmp_path / "out").rglob("*.tflite")) == ["m.tflite", "model.tflite"]


def test_folders_of_the_result_are_created(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    onnxtfl.onnx_to_tflite(source, tmp_path / "new" / "sub" / "m.tflite", check=False)
    assert (tmp_path / "new" / "sub" / "m.tflite").exists()
    fake.fail = lambda: (_ for _ in ()).throw(UnsupportedError("no"))
    with pytest.raises(UnsupportedError):
        onnxtfl.onnx_to_tflite(source, tmp_path / "other" / "sub" / "m.tflite", check=False)
    assert not (tmp_path / "other").exists()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "m.tflite")


@pytest.mark.skipif(os.name != "posix", reason="devices and links of POSIX")
def test_devices_and_links(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    onnxtfl.onnx_to_tflite(source, os.devnull, check=False)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    (tmp_path / "real.tflite").write_bytes(b"old")
    (tmp_path / "out" / "link.tflite").symlink_to(tmp_path / "real.tflite")
    onnxtfl.onnx_to_tflite(source, tmp_path / "out" / "link.tflite", check=False)
    assert (tmp_path / "out" / "link.tflite").is_symlink()
    assert (tmp_path / "real.tflite").read_bytes() == fake.data


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_the_result_has_the_usual_permissions(fake: FakePipeline, source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / "m.tflite"
    onnxtfl.onnx_to_tflite(source, target, check=False)
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_the_source_is_not_written_over(fake: FakePipeline, source: Path) -> None:
    before = source.read_bytes()
    with pytest.raises(UsageError, match="the source itself"):
        onnxtfl.onnx_to_tflite(source, source)
    assert source.read_bytes() == before


def test_the_wrong_format(fake: FakePipeline, tmp_path: Path) -> None:
    tflite = saved(tflite_scale(), tmp_path / "m.tflite")
    disguised = saved(tflite_scale(), tmp_path / "m.onnx")
    for model in (tflite, disguised, tflite.read_bytes()):
        with pytest.raises(InvalidModelError, match="not an ONNX model; convert it with tflite_to_onnx"):
            onnxtfl.onnx_to_tflite(model)
    for model in (saved(onnx_scale(), tmp_path / "o.onnx"), onnx_scale().SerializeToString()):
        with pytest.raises(InvalidModelError, match="not a TFLite model"):
            onnxtfl.tflite_to_onnx(model)


@pytest.mark.parametrize(
    "options",
    [
        {"check": "maybe"},
        {"io_layout": "NHWC"},
        {"io_layout": {"x": "NHWC"}},
        {"quantized_io": "int4"},
        {"dynamic_quant": "float"},
        {"float64": "keep"},
        {"min_runtime": "new"},
        {"input_shapes": {"x": (-5, 3)}},
        {"input_shapes": {"x": (2**40,)}},
    ],
    ids=str,
)
def test_options_that_make_no_sense(fake: FakePipeline, source: Path, options: dict[str, object]) -> None:
    with pytest.raises(UsageError) as error:
        onnxtfl.onnx_to_tflite(source, **options)
    assert error.value.exit_code == 2


def test_check_of_models_in_memory() -> None:
    assert onnxtfl.check(onnx_scale(), tflite_scale()).ok
    report = onnxtfl.check(onnx_scale(), tflite_scale(), data={"x": np.ones((2, 3), np.float32)}, seed=5, rtol=1e-6)
    assert (report.ok, report.inputs[0].values, report.seed, report.rtol) == (True, "given", 5, 1e-6)
    assert not onnxtfl.check(onnx_scale(), tflite_scale(2.5)).ok
    with pytest.raises(InvalidModelError):
        onnxtfl.check(b"junk", tflite_scale())


def test_keywords_under_their_former_names() -> None:
    ones = {"x": np.ones((2, 3), np.float32)}
    with pytest.warns(DeprecationWarning, match="`inputs` is now called `data`"):
        report = onnxtfl.check(onnx_scale(), tflite_scale(), inputs=ones)
    assert report.inputs[0].values == "given"
    with pytest.warns(DeprecationWarning, match="`steps` is now called `runs`"):
        onnxtfl.onnx_to_tflite(onnx_scale(), steps=2)
    with pytest.raises(UsageError, match="data and its former name inputs"), pytest.warns(DeprecationWarning):
        onnxtfl.check(onnx_scale(), tflite_scale(), inputs=ones, data=ones)


def test_a_conversion_is_checked_on_data_of_the_user(source: Path, tmp_path: Path) -> None:
    ones, twos = ({"x": np.full((2, 3), value, np.float32)} for value in (1, 2))
    np.savez(tmp_path / "data.npz", **ones)
    for data, cases in ((ones, 1), (tmp_path / "data.npz", 1), (tmp_path, 1), ((one for one in (ones, twos)), 2)):
        made = onnxtfl.onnx_to_tflite(source, check_data=data).check
        assert made is not None
        assert (made.status, made.inputs[0].values, made.cases) == ("passed", "given", cases)
    back = onnxtfl.tflite_to_onnx(tflite_scale(), check_data={"x": twos["x"]}).check
    assert back is not None
    assert back.inputs[0].values == "given"
    with pytest.raises(UsageError, match="the model has no input 'z'"):
        onnxtfl.onnx_to_tflite(source, check_data={"z": ones["x"]})
    with pytest.raises(UsageError, match="check_data is for the check, which check=False leaves out"):
        onnxtfl.onnx_to_tflite(source, check_data=ones, check=False)


def two_of_each() -> onnx.ModelProto:
    """Inputs of equal types, and outputs too: only their names and their order tell them apart."""
    nodes = [helper.make_node("Sub", ["a", "b"], ["c"]), helper.make_node("Sub", ["b", "a"], ["d"])]
    inputs, outputs = ([(name, TensorProto.FLOAT, (2, 3)) for name in names] for names in ("ab", "cd"))
    model = onnx_model(nodes, inputs, outputs)
    model.graph.input[1].doc_string = "the second"
    return model


def test_inputs_and_outputs_get_other_names(tmp_path: Path) -> None:
    names = {"b": "mask", "d": "scores", "c": "raw:0"}
    made = onnxtfl.onnx_to_tflite(two_of_each(), tmp_path / "m.tflite", rename=names, check="require", per_layer=True)
    assert [one.name for one in made.report.inputs] == ["a", "mask"]
    assert [one.name for one in made.report.outputs] == ["raw:0", "scores"]
    assert ("mask", "the second") in onnxtfl.inspect(tmp_path / "m.tflite").summary.descriptions.items()
    assert onnxtfl.check(two_of_each(), tmp_path / "m.tflite").ok
    back = onnxtfl.tflite_to_onnx(tmp_path / "m.tflite", rename={"mask": "b"}, check="require")
    assert [one.name for one in back.report.inputs] == ["a", "b"]
    cut = onnxtfl.onnx_to_tflite(two_of_each(), outputs=["d"], rename={"d": "e", "a": "x"}, check="require")
    assert [one.name for one in cut.report.inputs] == ["x", "b"]


@pytest.mark.parametrize(
    ("names", "telling"),
    [
        ({"e": "x"}, "the result has no input or output 'e'; the inputs and outputs are: 'a', 'b', 'c', 'd'"),
        ({"a": "b"}, "'a' cannot be called 'b', as another input or output is"),
        ({"a": "x", "b": "x"}, "'b' cannot be called 'x', as another input or output is"),
        ({"a": 1}, "rename cannot be 'a: 1'; use a new name for each old one"),
    ],
    ids=str,
)
def test_names_that_are_not_possible(names: dict[str, str], telling: str) -> None:
    with pytest.raises(UsageError) as error:
        onnxtfl.onnx_to_tflite(two_of_each(), rename=names)
    assert telling in str(error.value)


def test_a_cut_is_checked_against_the_same_part(fake: FakePipeline, source: Path) -> None:
    fake.data = tflite_scale(names=("x", "y"))
    conversion = onnxtfl.onnx_to_tflite(source, outputs=["y"], check="require")
    assert conversion.check is not None
    assert conversion.check.ok


def test_errors_are_one_line() -> None:
    error = UnsupportedError(
        "no kernel takes\n this", node="conv", op="Conv", version=11, type_="f32[1,?]", hint="fix the shape"
    )
    assert str(error) == "no kernel takes this [node 'conv' Conv-11, type f32[1,?]]; fix the shape (E-OP-001)"
    assert isinstance(error, OnnxtflError)
    assert str(OnnxtflError("x" * 5000)).endswith("...")
    assert str(OnnxtflError("plain")) == "plain"


def test_errors_print_few_scales() -> None:
    many = Quantization("int8", tuple(1 / k for k in range(1, 257)), (0,) * 256, axis=0)
    text = str(UnsupportedError(f"of {many}", type_=TensorType(DType.FLOAT32, (256, 2), many)))
    short = "quant<int8 axis=0 256 scales 0.00391..1>"
    assert (
        text
        == f"of {short} [type tensor<256x2xfloat32, {short}>]; cut the model around it (inputs, outputs) (E-OP-001)"
    )
    assert str(OnnxtflError(str(Quantization("uint8", (0.5,), (-3,))))) == "quant<uint8 0.5:-3>"


def test_peak_memory() -> None:
    assert (platform_calls.peak_memory() or 1) > 0


def every_parameter():
    """Each parameter of each public function, with arguments for the others."""
    needed = {
        "onnx_to_tflite": {"model": onnx_scale()},
        "tflite_to_onnx": {"model": tflite_scale()},
        "check": {"a": onnx_scale(), "b": tflite_scale()},
        "inspect": {"model": onnx_scale()},
        "signatures": {"model": tflite_scale()},
        "signatures_to_onnx": {"model": tflite_scale(), "directory": "nowhere"},
        "convert_many": {"models": ["none.onnx"], "directory": "nowhere"},
        "explain": {},
    }
    for name, others in needed.items():
        for parameter in inspect.signature(getattr(onnxtfl, name)).parameters.values():
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD and parameter.name != "calibration":
                yield pytest.param(name, others, parameter.name, id=f"{name} {parameter.name}")


@pytest.mark.parametrize(("name", "command"), FUNCTIONS.items())
def test_signatures_agree_with_the_table_of_options(name: str, command: str) -> None:
    """Each keyword is a row with the same default, and the other way round."""
    rows = {row.name: row for row in options_of(command) if row.is_keyword}
    taken = inspect.signature(operator.attrgetter(name)(onnxtfl)).parameters
    of_file = {"stage", "placement", "profile"} if name == "unsupported" else set()
    arguments = set(ARGUMENTS) | {"a", "b", "model", "options"} | of_file
    assert set(taken) - arguments == set(rows) - arguments
    assert all(parameter.default == rows[key].default for key, parameter in taken.items() if key in rows)


def test_options_and_settings_agree_with_the_table() -> None:
    """What the pipeline and the check use has the defaults of the table, and all that the table says is used."""
    options, settings, rows = Options(), Settings(), options_of(*FUNCTIONS.values())
    for row in (row for row in rows if row.setting and row.default is not None):
        assert getattr(settings, row.setting) == row.default, row.name
    used = {field.name: getattr(options, field.name) for field in dataclasses.fields(Options)}
    for row in (row for row in rows if row.name in used and row.default is not None):
        assert used[row.name] == row.default, row.name
    others = {
        *("check", "load", "keep_failed", "quantize", "calibration", "mean", "std", "data", "check_data", "stage"),
        *("placement", "profile"),
    }
    others |= {row.name for row in options_of("many", "ops", "llm")}
    assert {row.name for row in rows if row.is_keyword and not row.setting} - set(used) <= others


@pytest.mark.parametrize(("function", "others", "parameter"), list(every_parameter()))
def test_an_argument_of_a_wrong_type_is_one_line(function: str, others: dict[str, object], parameter: str) -> None:
    for wrong in (object(), 3.5j):
        with pytest.raises(UsageError) as error:
            getattr(onnxtfl, function)(**{**others, parameter: wrong})
        assert f"{parameter} cannot be" in str(error.value)


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        ({"rtol": "a"}, "rtol cannot be 'a'; use a number of at least 0"),
        ({"rtol": float("nan")}, "rtol cannot be nan"),
        ({"seed": -1}, "seed cannot be -1; use an integer from 0"),
        ({"seed": True}, "seed cannot be True"),
        ({"min_runtime": "99"}, "min_runtime cannot be '99'; use 2.14 to 2.23"),
        ({"min_runtime": 2.5}, "min_runtime cannot be '2.5'; use 2.14 to 2.23"),
        ({"outputs": ["y", "y"]}, "outputs names 'y' twice"),
        ({"outputs": ["yy"]}, "the model has no tensor 'yy'; did you mean 'y'?"),
        ({"inputs": "x"}, "inputs cannot be 'x'; use a list of tensor names, ['x']"),
        ({"path": "m.onnx"}, "m.onnx is not a name for a TFLite model, which the result is; name it m.tflite"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense(options: dict[str, object], telling: str) -> None:
    with pytest.raises(UsageError) as error:
        onnxtfl.onnx_to_tflite(onnx_scale(), **options)
    assert telling in str(error.value)


def test_standard_input_as_a_path_says_what_to_do() -> None:
    with pytest.raises(InvalidModelError, match=r"/dev/stdin is not a regular file; name .*, or pass its bytes"):
        onnxtfl.onnx_to_tflite("/dev/stdin")


def test_large_models_run_on_other_kernels_where_the_check_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_check, "HEAVY", 1 << 9)
    report = onnxtfl.onnx_to_tflite(onnx_scale()).check
    assert report is not None
    assert report.ok
    assert report.notes == ("builtin kernels not compared: the model has more than 0 MB",)
    report = onnxtfl.onnx_to_tflite(onnx_scale(), check="require").check
    assert report is not None
    assert report.notes == ()
