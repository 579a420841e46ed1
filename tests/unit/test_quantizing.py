"""Quantized models: calibration data, options, and what litert-quantizer makes of a converted model."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import onnxtfl
from onnxtfl import quantizing
from onnxtfl.checking.quantized import WITHIN
from onnxtfl.errors import RuntimeUnavailableError, UnsupportedError, UsageError
from onnxtfl.formats.tflite.reader import read
from onnxtfl.inputs.calibrated import Calibrated, calibrated
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.spread import Spread, Spreads
from onnxtfl.ir.metadata import as_text
from onnxtfl.ir.text import parse_graph
from onnxtfl.quantizing import random_samples, read_samples
from onnxtfl.runtimes import quantizer, quantizer_script
from onnxtfl.runtimes.profiles import Speed, SpeedChange
from onnxtfl.runtimes.speed import added_times
from onnxtfl.targets.tflite import has_quantized_kernel
from tests.unit.tiny_models import onnx_model, saved

F, I64 = TensorProto.FLOAT, TensorProto.INT64
INSTALLED = importlib.util.find_spec("litert_quantizer") is not None
needs_library = pytest.mark.skipif(not INSTALLED, reason="litert-quantizer is not installed (onnxtfl[quantize])")
INFOS = (TensorInfo("x", "float32", (1, 4)), TensorInfo("k", "int32", (None,)))


def two_layers(width: int = 64) -> ModelProto:
    """x [1,width] -> Gemm -> Relu -> Gemm -> y [1,8]."""
    random = np.random.default_rng(0)
    shapes = {"a": (width, width), "b": (width,), "c": (width, 8), "d": (8,)}
    weights = [
        numpy_helper.from_array((random.normal(size=s) / 8).astype(np.float32), name) for name, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "c", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, s]) for n, s in (("x", width), ("y", 8)))
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@needs_library
@pytest.mark.parametrize("mode", ["dynamic", "float16"])
def test_quantized_weights(mode: Any) -> None:
    plain, made = onnxtfl.onnx_to_tflite(two_layers()), onnxtfl.onnx_to_tflite(two_layers(), quantize=mode)
    assert made.check is not None and made.check.ok and made.report.size < 0.6 * plain.report.size
    (out,) = made.check.outputs
    assert out.within == WITHIN and "of the elements within 16" in out.in_steps


@needs_library
def test_metadata_and_associated_files_are_kept() -> None:
    model, files = two_layers(), io.BytesIO()
    model.graph.input[0].doc_string = "what comes in"
    with zipfile.ZipFile(files, "w") as opened:
        opened.writestr("labels.txt", "cat")
    model.metadata_props.add(key="tflite.files", value=as_text(files.getvalue()))
    made = onnxtfl.onnx_to_tflite(model, check=False, quantize="float16").data
    assert read(made).metadata.descriptions == {"x": "what comes in"}
    assert zipfile.ZipFile(io.BytesIO(made)).read("labels.txt") == b"cat"


@needs_library
@pytest.mark.parametrize(
    ("mode", "io", "dtype"),
    [("int8", "source", "float32"), ("int8", "int8", "int8"), ("int16x8", "float", "float32")],
)
def test_integer_models(mode: Any, io: Any, dtype: str) -> None:
    made = onnxtfl.onnx_to_tflite(two_layers(), quantize=mode, calibration="random", quantized_io=io)
    assert made.check is not None and made.check.ok
    assert [spec.dtype for spec in (*made.report.inputs, *made.report.outputs)] == [dtype, dtype]
    found = made.report.quantization
    assert found is not None and found.integer_ops["FULLY_CONNECTED"] == 2 and not found.float_ops


@needs_library
@pytest.mark.parametrize(("mode", "scale"), [("int8", 5.0), ("dynamic", 1.0)])
def test_a_later_check_judges_by_the_same_rule(tmp_path: Path, mode: Any, scale: float) -> None:
    """The file says how it was quantized; without its ranges, generated inputs would be far from the calibration's."""
    source, path = saved(two_layers(), tmp_path / "m.onnx"), tmp_path / "q.tflite"
    rng = np.random.default_rng(0)
    samples = [{"x": (scale * rng.normal(size=(1, 64))).astype(np.float32)} for _ in range(8)]
    onnxtfl.onnx_to_tflite(source, path, quantize=mode, calibration=samples if mode == "int8" else None)
    checked = onnxtfl.check(source, path)
    assert checked.ok, checked.reason
    assert checked.outputs[0].within == WITHIN
    assert ("range of the calibration data" in checked.inputs[0].values) == (mode == "int8")
    strict = onnxtfl.check(source, path, max_steps=1.5)
    assert strict.outputs[0].within == 1.5


@needs_library
def test_a_later_check_finds_damage(tmp_path: Path) -> None:
    """A quarter of the weights of the first layer is cleared."""
    source, path = saved(two_layers(), tmp_path / "m.onnx"), tmp_path / "q.tflite"
    onnxtfl.onnx_to_tflite(source, path, quantize="int8", calibration="random")
    assert onnxtfl.check(source, path).ok
    weights = max((v for node in read(path).main.walk() for v in node.operands if v and v.data), key=_bytes)
    stored, data = weights.data.numpy().tobytes(), path.read_bytes()  # type: ignore[union-attr]
    assert data.count(stored) == 1
    path.write_bytes(data.replace(stored, bytes(len(stored) // 4) + stored[len(stored) // 4 :]))
    found = onnxtfl.check(source, path)
    assert found.status == "failed"
    assert any("`data`" in note for note in found.notes)


def _bytes(value: Any) -> int:
    return int(value.data.nbytes)


def test_what_a_file_says_about_its_quantization() -> None:
    known = Calibrated("int8", {"x": Spread(-1.0, 2.5, 0.0, 1.0)})
    assert Calibrated.from_json(known.to_json()) == known
    spread = '{"mode": "int8", "inputs": {"x": {"low": 1, "high": -1, "mean": 0, "std": 1}}}'
    for text in ("", "[]", "{}", '{"mode": "loose", "inputs": {}}', '{"mode": "int8", "inputs": {"x": 1}}', spread):
        assert Calibrated.from_json(text) is None


def test_inputs_like_calibration_data() -> None:
    rng, spreads = np.random.default_rng(0), Spreads()
    given = [
        {"x": rng.normal(3, 2, (2, 500)), "k": np.array([2, 5])},
        {"x": np.full((2, 500), np.inf), "k": np.array(3)},
    ]
    assert list(spreads.observed(given)) == given
    found = spreads.by_input()
    assert found["k"] == Spread(2, 5, 10 / 3, pytest.approx(np.std([2, 5, 3])))
    values, choice = found["x"].make(TensorInfo("x", "float32", (2, 500)), (2, 500), None, (0,))
    assert choice.startswith("range") and values.dtype == np.float32
    assert abs(values.mean() - 3) < 0.3 and abs(values.std() - 2) < 0.2
    assert found["x"].low <= values.min() and values.max() <= found["x"].high
    whole, _ = found["k"].make(TensorInfo("k", "int64", (50,)), (50,), None, (0,))
    assert set(whole.tolist()) == {2, 3, 4, 5}


@needs_library
def test_a_slower_model_says_which_ops_are_slow(tmp_path: Path) -> None:
    """int16 has no kernels in XNNPACK."""
    made = onnxtfl.onnx_to_tflite(two_layers(512), quantize="int16x8", calibration="random")
    assert made.check is not None and made.check.speed is not None
    speed = made.check.speed
    assert speed.after.size == made.report.size < speed.before.size
    assert speed.after.delegated < speed.before.delegated == speed.before.total
    assert speed.is_slower and "FULLY_CONNECTED" in {op.op for op in speed.added}
    assert str(speed) in made.table(width=1000)
    assert made.check.to_json()["speed"]["added"][0]["op"] == speed.added[0].op
    onnxtfl.write_report(made, tmp_path / "page.html")
    assert "Before and after quantizing" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_takes_longer() -> None:
    """Kernels of one name and other element types are one kind; what takes as long before is not named."""
    before = [("a", "XNNPACK Convolution (NHWC, F32)", 4.0), ("b", "GELU", 1.0), ("c", "ADD", 2.0)]
    after = [("a", "XNNPACK Convolution (NHWC, QC8)", 3.0), ("b", "GELU", 6.0), ("c", "ADD", 2.0), ("d", "CAST", 1.0)]
    found = added_times(before, after)
    assert [(op.op, op.milliseconds) for op in found] == [("GELU", 5.0), ("CAST", 1.0)]
    slower = SpeedChange(
        "int8", Speed(12_300_000, 8.0, "XNNPACK", 9, 9), Speed(3_200_000, 20.0, "XNNPACK", 4, 30), found
    )
    assert str(slower) == (
        "float 12.3 MB, 8 ms; int8 3.2 MB, 20 ms, 2.5 times slower: GELU +5 ms, CAST +1 ms; "
        "XNNPACK computes 4 of 30 ops, 9 of 9 of the float model"
    )
    assert (
        str(SpeedChange("int8", Speed(10, 4.0), Speed(5, 2.0))) == "float 10 B, 4 ms; int8 5 B, 2 ms, 2 times as fast"
    )
    assert str(SpeedChange("int8", Speed(10), Speed(5))) == "float 10 B; int8 5 B"


@needs_library
def test_a_conversion_of_a_quantized_model_is_no_quantized_one(tmp_path: Path) -> None:
    """The ONNX model computes what the .tflite does: the usual tolerance holds between them."""
    path, back = tmp_path / "q.tflite", tmp_path / "back.onnx"
    onnxtfl.onnx_to_tflite(two_layers(), path, quantize="int8", calibration="random")
    onnxtfl.tflite_to_onnx(path, back)
    onnxtfl.onnx_to_tflite(back, tmp_path / "again.tflite")
    assert calibrated(back) is None and calibrated(tmp_path / "again.tflite") is None
    assert onnxtfl.check(path, back).outputs[0].within == 1


def attention(mask: float) -> ModelProto:
    """y = Softmax(x w xT + where(m, 0, mask)) x: attention with an additive mask."""
    random = np.random.default_rng(0)
    constants = {"w": (random.normal(size=(16, 16)) / 2).astype(np.float32), "none": np.float32(0)}
    constants["far"] = np.float32(mask)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a", "t"], ["s"]),
        helper.make_node("Cast", ["mask"], ["c"], to=TensorProto.BOOL),
        helper.make_node("Where", ["c", "none", "far"], ["m"]),
        helper.make_node("Add", ["s", "m"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "x"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, [1, 8, 16]), ("mask", TensorProto.INT64, [1, 1, 8])]
    return onnx_model(nodes, inputs, [("y", TensorProto.FLOAT, [1, 8, 16])], constants)


@needs_library
@pytest.mark.parametrize("mask", [-np.inf, np.finfo(np.float32).min, -1e6])
@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_masks_stay_float(mode: Any, mask: float) -> None:
    """A mask would make a scale that leaves nothing of the scores, or with which kernels abort."""
    made = onnxtfl.onnx_to_tflite(attention(mask), quantize=mode, calibration="random")
    assert made.check is not None and made.check.ok
    found = made.report.quantization
    assert found is not None and found.integer_ops["BATCH_MATMUL"] == 2
    assert {op.op for op in found.float_ops} >= {"ADD", "SOFTMAX"}


def extremes(low: float, high: float) -> dict[str, Any]:
    return {"min": np.full((1,), low, np.float32), "max": np.full((1,), high, np.float32)}


def test_ranges_that_are_too_wide() -> None:
    found = {"scores": extremes(-4, 4), "mask": extremes(-np.inf, 0), "masked": extremes(-3e38, 4)}
    assert quantizer_script.wide(found) == {"mask", "masked"}


@needs_library
def test_the_range_of_a_tensor_is_that_of_all_samples(tmp_path: Path) -> None:
    """Not the average, which clips what is in few samples, or not in the first."""
    path = tmp_path / "m.tflite"
    onnxtfl.onnx_to_tflite(two_layers(), path, check=False)
    values = (1.0, -3.0, 9.0, 0.5)
    found = quantizer_script.extremes_of(str(path), [{"x": np.full((1, 64), v, np.float32)} for v in values])
    assert (found["x"]["min"], found["x"]["max"]) == (-3.0, 9.0)


@needs_library
@pytest.mark.parametrize("mode", ["dynamic", "int8", "int16x8", "float16"])
def test_ops_in_loops_are_quantized(mode: quantizing.Mode) -> None:
    """What loops carry stays float, and one that they pass on is read as it is."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 32), np.float32) / 8
    body = parser.parse_graph(
        "step (int64 i, bool go, float[1, 32] h) => (bool more, float[1, 32] n)"
        " { more = Identity (go)  m = MatMul (h, w)  s = Add (m, x)  n = Tanh (s) }"
    )
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    inputs, constants = [("x", F, (1, 32)), ("count", I64, ())], {"w": w}
    model = onnx_model(nodes, inputs, [("y", F, (1, 32))], constants)
    calibration = (
        None
        if mode in ("dynamic", "float16")
        else [{"x": rng.standard_normal((1, 32)).astype(np.float32), "count": np.array(3)} for _ in range(8)]
    )
    conversion = onnxtfl.onnx_to_tflite(model, quantize=mode, calibration=calibration, input_ranges={"count": (0, 4)})
    assert "WHILE" in conversion.report.ops_after
    assert conversion.check is not None
    assert conversion.check.ok


@needs_library
def test_a_branch_that_no_sample_takes_stays_float() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (bool c, float[1, 8] x) => (float[1, 8] y) { y = If (c) <'
        "then_branch = t () => (float[1, 8] a) { a = Sigmoid (x) },"
        "else_branch = e () => (float[1, 8] b) { p = Tanh (x)  b = Mul (p, x) }> }"
    )
    samples = [{"c": np.array(True), "x": np.linspace(-1, 1, 8, dtype=np.float32)[None]}]
    conversion = onnxtfl.onnx_to_tflite(model, quantize="int8", calibration=samples)
    assert conversion.check is not None
    assert conversion.check.ok
    assert conversion.report.quantization is not None
    assert {"TANH", "MUL"} <= {op.op for op in conversion.report.quantization.float_ops}


def test_exponents_that_would_be_coarse() -> None:
    """With a mask of -10000, a step is 39 in 8 bits, and 0.15 in 16."""
    text = """graph main(%x: tensor<4x8xfloat32>, %mask: tensor<8xfloat32>) -> (%y) {
      %sum = Add(%x, %mask)
      %moved = Transpose(%sum) {permutation = [1, 0]}
      %y = Softmax(%moved) {axis = 0}
    }"""
    names = quantizing.exponents(parse_graph(text))
    assert names == [["moved", "sum"]]
    for levels, left in ((255, {"moved", "sum"}), (65535, set())):
        assert quantizer_script.coarse(names, {"sum": extremes(-1e4, 4)}, levels) == left


def test_divisors_that_would_be_zero() -> None:
    """The root of a variance, of which the least elements are less than a step."""
    text = """graph main(%x: tensor<4x8xfloat32>) -> (%y) {
      %axes = constant tensor<1xint64> [1]
      %tiny = constant tensor<float32> [1e-05]
      %squares = Mul(%x, %x)
      %variance = Reduce(%squares, %axes) {kind = "mean", keepdims = true}
      %sum = Add(%variance, %tiny)
      %root = Sqrt(%sum)
      %y = Div(%x, %root)
    }"""
    divided = quantizing.divisors(parse_graph(text))
    assert divided == [{"checked": ["root", "sum", "variance"], "others": ["squares", "x"]}]
    for least, names in ((0.001, {"root", "sum", "variance", "squares", "x"}), (0.1, set())):
        assert quantizer_script.small(divided, {"variance": extremes(least, 2)}, 255) == names


def test_what_the_library_writes_wrongly() -> None:
    """A constant times a matrix; constants of fewer axes than the result of an op that selects elements."""
    text = """graph main(%c: tensor<2x3xbool>, %x: tensor<2x3xfloat32>) -> (%p, %s) {
      %w = constant tensor<2x2xfloat32> [1.0, 2.0, 3.0, 4.0]
      %far = constant tensor<1xfloat32> [-9.0]
      %p = DotGeneral(%w, %x) {lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]}
      %s = Select(%c, %far, %x)
      %sum = Add(%far, %x)
    }"""
    assert quantizing.unsupported(parse_graph(text)) == ["p", "s"]


def test_extremes_have_the_rank_of_their_tensor() -> None:
    op = quantizer_script.Op(["x"], ["y"], {"x": 3, "y": 1}, "y;")
    found = quantizer_script.of_tensor_ranks({"x": extremes(-1, 1)}, [op])
    assert found["x"]["min"].shape == (1, 1, 1)


def test_calibration_from_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(b"PK\x03\x04 text")
    with pytest.raises(UsageError, match=r"is not an \.npz file"):
        list(read_samples(path, []))


@needs_library
def test_calibration_from_a_file_and_from_python(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).normal(size=(8, 1, 64)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=samples)
    given = [{"x": sample} for sample in samples]
    first, second = (
        onnxtfl.onnx_to_tflite(two_layers(), quantize="int8", calibration=data).data
        for data in (tmp_path / "data.npz", given)
    )
    assert first is not None and first == second


@needs_library
def test_what_the_library_cannot_quantize_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"^litert-quantizer [\d.]+ cannot quantize this model: "):
        quantizer.quantize(saved(two_layers(), tmp_path / "m.tflite"), "dynamic", ["x"])


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantizer, "DISTRIBUTION", "litert-quantizer-of-another-name")
    with pytest.raises(RuntimeUnavailableError, match=r"is not installed; pip install 'onnxtfl\[quantize\]'"):
        onnxtfl.onnx_to_tflite(two_layers(), quantize="dynamic")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantize": "int4"}, "quantize cannot be 'int4'"),
        ({"quantize": "int8"}, "int8 needs calibration data; give an .npz file"),
        ({"quantize": "dynamic", "calibration": "random"}, "dynamic uses no calibration data"),
        ({"calibration": "random"}, "calibration data are for quantizing"),
        ({"quantize": "int8", "calibration": "nowhere.npz"}, "there is no calibration data at nowhere.npz"),
        ({"quantize": "int16x8", "calibration": "random", "quantized_io": "int8"}, "int16x8 has no int8 inputs"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        onnxtfl.onnx_to_tflite(two_layers(), **options)


def test_samples_of_a_directory_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    x = np.arange(12, dtype=np.float64).reshape(3, 1, 4)
    np.savez(tmp_path / "b.npz", x=x[0], k=np.arange(5))
    np.savez(tmp_path / "a.npz", x=x[1:], k=np.arange(4).reshape(2, 2))
    found = list(read_samples(tmp_path, INFOS))
    assert [sample["x"].tolist() for sample in found] == [x[1].tolist(), x[2].tolist(), x[0].tolist()]
    assert [sample["k"].tolist() for sample in found] == [[0, 1], [2, 3], [0, 1, 2, 3, 4]]
    assert found[0]["x"].dtype == np.float32 and found[0]["k"].dtype == np.int32


def test_a_single_array_is_the_first_input(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", np.arange(12.0).reshape(3, 1, 4))
    found = list(read_samples(tmp_path / "data.npy", INFOS[:1]))
    assert [sample["x"].tolist() for sample in found] == np.arange(12.0).reshape(3, 1, 4).tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((1, 4))}, r"calibration data for \['x'\]; expected: x float32 \[1, 4\], k int32 \[None\]"),
        ({"x": np.zeros((2, 4)), "k": np.zeros(3)}, r"shape \[2, 4\] for the input 'x'"),
        ({"x": np.zeros((3, 1, 4)), "k": np.zeros((2, 3))}, "different numbers of samples"),
    ],
)
def test_samples_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UsageError, match=message):
        list(read_samples(tmp_path / "data.npz", INFOS))


def test_other_files_are_not_samples(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no .npz files"):
        list(read_samples(tmp_path, INFOS))
    (tmp_path / "data.npz").write_bytes(b"no")
    with pytest.raises(UsageError, match=r"data\.npz is not an \.npz file"):
        list(read_samples(tmp_path, INFOS))


def test_random_samples_are_seeded(tmp_path: Path) -> None:
    onnxtfl.onnx_to_tflite(two_layers(), tmp_path / "m.tflite", check=False)
    infos = (TensorInfo("x", "float32", (1, 64)),)
    first, second, other = (list(random_samples(tmp_path / "m.tflite", infos, seed)) for seed in (0, 0, 1))
    assert len(first) == quantizing.RANDOM_SAMPLES
    assert all((a["x"] == b["x"]).all() for a, b in zip(first, second, strict=True))
    assert not (first[0]["x"] == other[0]["x"]).any() and not (first[0]["x"] == first[1]["x"]).any()


def test_ops_without_quantized_kernels_stay_float() -> None:
    assert has_quantized_kernel("CONV_2D", "int8") and has_quantized_kernel("CONV_2D", "int16")
    assert not has_quantized_kernel("SIN", "int8") and not has_quantized_kernel("custom", "int8")
    assert has_quantized_kernel("GATHER", "int16")
    assert not has_quantized_kernel("GATHER", "int16", ("litert", "micro"))
