"""What the check says about quantized models: steps, op by op, and the distance from ONNX Runtime's emulation."""

from __future__ import annotations

import importlib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from onnxtfl import CheckFailedError, check, onnx_to_tflite, tflite_to_onnx
from onnxtfl.checking.localize.steps import dequantized_step
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.facts import analyze
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.formats import files
from onnxtfl.inputs.description import describe
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.text import parse_graph
from onnxtfl.metrics.distances import Three, measure
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.tracing.matches import Way
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import saved

FLOAT = TensorProto.FLOAT


def quantized(wrong: float = 1.0, layers: int = 3, bias: float = 0.0) -> ModelProto:
    """Matrix products between QDQ pairs, [2,8] to [2,8]; the weights of the second are `wrong` times as large, and the
    results have `bias` steps added.
    """
    random, nodes = np.random.default_rng(0), []
    constants = [np.float32(0.05), np.int8(3), np.float32(0.01), np.int8(0)]
    weights = [random.integers(-99, 100, (8, 8), np.int8) for _ in range(layers)]
    weights[1] = (weights[1] * wrong).astype(np.int8)
    initializers = [numpy_helper.from_array(np.asarray(c), n) for c, n in zip(constants, "szuv", strict=True)]
    initializers.append(numpy_helper.from_array(np.full(8, bias * 0.05, np.float32), "b"))
    name = "x"
    for i, weight in enumerate(weights):
        initializers.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes += [
            helper.make_node("QuantizeLinear", [name, "s", "z"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", "s", "z"], [f"d{i}"]),
            helper.make_node("DequantizeLinear", [f"w{i}", "u", "v"], [f"f{i}"]),
            helper.make_node("MatMul", [f"d{i}", f"f{i}"], [f"p{i}"]),
            helper.make_node("Add", [f"p{i}", "b"], [f"m{i}"]),
        ]
        name = f"m{i}"
    nodes.append(helper.make_node("QuantizeLinear", [name, "s", "z"], ["q"]))
    nodes.append(helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]))
    x, y = (helper.make_tensor_value_info(n, FLOAT, [2, 8]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


X = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)


def against(tmp_path: Path, onnx: ModelProto, source: ModelProto) -> CheckReport:
    """The check of `onnx` and the TFLite model that `source` is converted to."""
    onnx_to_tflite(source, tmp_path / "m.tflite", check=False)
    return check_models(
        saved(onnx, tmp_path / "m.onnx"), tmp_path / "m.tflite", Settings(max_steps=1e-6, rtol=0, atol=0)
    )


def test_the_op_that_differs_is_named_and_rejects(tmp_path: Path) -> None:
    report = against(tmp_path, quantized(), quantized(wrong=0.5))
    assert report.status == "failed" and report.first_difference is not None
    assert report.first_difference.b == "q2"
    assert [j.verdict for j in report.outputs[0].judgments if j.criterion == "op-by-op"] == ["reject"]


def test_a_lost_bias_is_a_fault_where_each_element_is_within_a_step(tmp_path: Path) -> None:
    """0.9 of a step in each of several layers."""
    report = against(tmp_path, quantized(layers=4), quantized(layers=4, bias=0.9))
    assert report.status == "failed"
    assert any("mean error" in judgment.reason for judgment in report.outputs[0].judgments if judgment.rejects)


def test_models_whose_tensors_do_not_correspond_are_not_accepted_op_by_op(tmp_path: Path) -> None:
    other = quantized(wrong=0.5)
    for node in other.graph.node:
        node.output[:] = [f"{name}_" for name in node.output]
        node.input[:] = [f"{name}_" if name[0] in "qdfmp" else name for name in node.input]
    other.graph.output[0].name += "_"
    report = against(tmp_path, other, quantized())
    assert report.status == "failed" and not report.outputs[0].was_accepted_by("op-by-op")


def test_the_distance_from_the_emulation() -> None:
    emulated, near, far = (np.float64([4, 2, d]) for d in (0, 1, 3))
    (found,) = measure(["y"], lambda _: [Three(emulated, near, far)], 60)
    assert str(found).endswith("over 20 inputs; top-1 agrees in 100 %")
    assert not found.ok and "TFLite is further" in str(found) and "mean 0.25 (50 % 0, 90 % 0.75" in str(found)
    (found,) = measure(["y"], lambda _: [Three(emulated, far, near)], 0)
    assert found.ok and str(found).endswith("over 5 inputs; top-1 agrees in 100 %")
    (found,) = measure(["y"], lambda _: [Three(emulated, emulated, emulated)], 0)
    assert found.ok
    (found,) = measure(["y"], lambda _: [Three(emulated, emulated, far)], 0)
    assert "ONNX Runtime computes the same with and without" in str(found)


def test_an_output_several_times_as_far_from_the_emulation_is_a_fault() -> None:
    emulated, fused, other = (np.float64([400, 2, d]) for d in (0, 1, 60))
    (found,) = measure(["y"], lambda _: [Three(emulated, fused, other, step=1.0)], 0)
    assert found.is_far
    (found,) = measure(["y"], lambda _: [Three(emulated, fused, other, step=30.0)], 0)  # less than a step on average
    assert not found.is_far
    (found,) = measure(["y"], lambda _: [Three(emulated, other, other, step=1.0)], 0)
    assert not found.is_far


def test_a_wrong_float32_copy_of_a_source_is_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, copy, made = saved(quantized(), tmp_path / "a.onnx"), tmp_path / "copy.onnx", tmp_path / "b.tflite"
    onnx_to_tflite(quantized(wrong=-1.0), made, check=False, target="gpu")
    tflite_to_onnx(made, copy, check=False)
    assert check(copy, made).ok
    monkeypatch.setattr("onnxtfl.checking.session.real_source", lambda source, stack: copy)
    assert not check_models(source, made, Settings(in_float32=True)).ok


def test_distances_of_large_outputs_are_measured_in_little_memory() -> None:
    emulated = np.full((1, 3, 1 << 20), 40, np.int8)
    other = emulated.copy()
    other[0, 1, 7] += 20
    other = np.ascontiguousarray(other.transpose(0, 2, 1))
    quantization = Quantization("int8", (0.5,), (0,))
    tracemalloc.start()
    (found,) = measure(["y"], lambda _: [Three(emulated, emulated, other, quantization).aligned([(0, 2, 1)])], 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.tflite.largest == 0.5
    assert found.tflite.mean == pytest.approx(0.5 / emulated.size)
    assert peak < 12 * emulated.nbytes


def test_steps_are_counted_and_the_rule_is_stated() -> None:
    q = Quantization("int8", (0.5,), (0,))
    a = np.arange(100, dtype=np.int8)
    b = a.copy()
    b[3] += 2
    out = compare("y", a, b, Expectation(quantization_a=q))
    assert (out.ok, out.steps, out.share) == (False, 2.0, 0.99)
    assert out.in_steps.startswith("2 steps, 99 % of the elements within 1")
    real = compare("y", a * np.float32(0.5), b * np.float32(0.5), Expectation(step=0.5))
    assert (real.step, real.steps, real.share) == (0.5, 2.0, 0.99)


def test_integers_of_another_scale_are_compared_as_real_numbers() -> None:
    a = np.int8([2, 4, 6])
    fine, coarse = (Quantization("int8", (scale,), (0,)) for scale in (0.5, 1.0))
    assert compare("y", a, a // np.int8(2), Expectation(quantization_a=fine, quantization_b=coarse)).ok
    assert not compare("y", a * np.int8(9), a * np.int8(9), Expectation(quantization_a=fine, quantization_b=coarse)).ok


def test_the_step_of_an_output_is_known_in_both_formats(tmp_path: Path) -> None:
    onnx_to_tflite(quantized(), tmp_path / "m.tflite", check=False)
    tflite_to_onnx(tmp_path / "m.tflite", tmp_path / "back.onnx", check=False)
    for path in (saved(quantized(), tmp_path / "m.onnx"), tmp_path / "m.tflite", tmp_path / "back.onnx"):
        facts = analyze(lifted_where_possible(files.read(path)))
        assert facts.quantized and facts.steps == {"y": pytest.approx(0.05)}


def test_a_conversion_says_how_many_steps_it_is_off() -> None:
    (out,) = onnx_to_tflite(quantized()).check.outputs
    assert out.step == pytest.approx(0.05) and out.share == 1.0 and out.steps is not None and out.steps <= 1.01


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not there (ONNXTFL_CORPUS)")
def test_differences_that_add_up_in_a_deep_model_pass_op_by_op() -> None:
    report = onnx_to_tflite(CORPUS / "onnx/resnet18_qop/model.onnx").check
    assert report is not None and report.ok
    assert any("accepted op by op" in note for note in report.notes)
    assert any("the same with and without graph optimizations; TFLite differs by" in note for note in report.notes)


def finer(ratio: int) -> ModelProto:
    """The difference (x * y + y) - x * y of rounded terms, in steps of 1 / `ratio` of theirs."""
    nodes, initializers = [], [numpy_helper.from_array(np.int8(1), "z")]

    def rounded(name: str, step: float) -> str:
        initializers.append(numpy_helper.from_array(np.float32(step), f"s{name}"))
        for op, before, after in (("QuantizeLinear", name, f"q{name}"), ("DequantizeLinear", f"q{name}", f"d{name}")):
            nodes.append(helper.make_node(op, [before, f"s{name}", "z"], [after]))
        return f"d{name}"

    def computed(op: str, lhs: str, rhs: str, name: str, step: float) -> str:
        nodes.append(helper.make_node(op, [lhs, rhs], [name]))
        return rounded(name, step)

    x, y = rounded("x", 0.05), rounded("y", 0.031)
    product = computed("Mul", x, y, "product", 0.0431)
    total = computed("Add", product, y, "sum", 0.0371)
    result = computed("Sub", total, product, "difference", 0.0371 / ratio)
    inputs, output = ([helper.make_tensor_value_info(n, FLOAT, [4, 64]) for n in names] for names in ("xy", [result]))
    graph = helper.make_graph(nodes, "g", inputs, output, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_one_step_that_a_finer_result_makes_several_passes_op_by_op() -> None:
    report = onnx_to_tflite(finer(4)).check
    assert report is not None and report.ok
    (out,) = report.outputs
    assert out.steps is not None and out.steps > 1
    assert any("accepted op by op" in note for note in report.notes)


def test_a_wrong_quantized_model_fails(tmp_path: Path) -> None:
    onnx_to_tflite(quantized(wrong=0.5), tmp_path / "m.tflite", check=False)
    report = check(quantized(), tmp_path / "m.tflite")
    assert report.status == "failed" and any("1 of " in note and "differ" in note for note in report.notes)


@pytest.mark.parametrize(("weights", "hybrid"), [("quant<int8 0.5:0>", True), ("", False)])
def test_hybrid_kernels_are_recognized(weights: str, hybrid: bool) -> None:
    type_ = f"tensor<2x3xfloat32{', ' + weights if weights else ''}>"
    elements = [1, 2, 3, 4, 5, 6] if weights else [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    graph = parse_graph(f"""graph main(%x: tensor<4x3xfloat32>) -> (%y) {{
      %w = constant {type_} {elements}
      %y = tfl.FULLY_CONNECTED@3(%x, %w) : tensor<4x2xfloat32>
    }}""")
    graph.output_names = ["y"]
    assert describe(Path("m.tflite"), Model(graph, format="tflite")).hybrid == hybrid


def test_positions_are_compared_op_by_op(tmp_path: Path) -> None:
    model = quantized()
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["best"], axis=1, keepdims=0))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("best", TensorProto.INT64, [2]))
    assert against(tmp_path, model, model).ok


@pytest.mark.parametrize(
    ("own", "shape", "wanted"),
    [
        ((2, 32, 1), ("batch", "seq"), (2, 32)),
        ((2, 3), ("n", 1, 3), (2, 1, 3)),
        ((2, 32), ("batch", 1, "seq"), (2, 1, 32)),
        ((6, 4), (2, "n", "m"), None),
        ((2, 5), (3, "n", "m", 1), None),
        ((0, 4), ("n", 4), (0, 4)),
    ],
)
def test_values_are_shaped_where_several_sizes_are_open(
    own: tuple[int, ...], shape: tuple[int | str, ...], wanted: tuple[int, ...] | None
) -> None:
    """A failing check of a quantized transformer with open batch and length ended in an internal error."""
    found = Way(None, shape).moved(np.zeros(own), ())
    assert (None if found is None else found.shape) == wanted


def test_real_tensors_have_the_steps_of_what_is_dequantized() -> None:
    """A DEQUANTIZE of what only the TFLite model has: the integer kernel before it may be a step off."""
    graph = parse_graph("""graph main(%x: tensor<4xfloat32, quant<int8 0.5:0>>) -> (%y) {
      %a = tfl.ABS@1(%x) : tensor<4xfloat32, quant<int8 0.5:0>>
      %y = tfl.DEQUANTIZE@2(%a) : tensor<4xfloat32>
    }""")
    y = graph.outputs[0]
    a = y.producer.operand(0) if y.producer is not None else y
    assert dequantized_step(y, lambda _: False) == 0.5
    assert dequantized_step(y, lambda value: value is a) is None


def padded_convolution() -> ModelProto:
    """A quantized Conv of stride 2 that pads a border of 1, which SAME does not."""
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1, 4, 64, 64] x) => (float[1, 8, 32, 32] y)
      <float s = {0.05}, int8 z = {40}, float u = {0.01}, int8 v = {0}, float t = {0.05}, int8 p = {-20}> {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        f = DequantizeLinear (w, u, v)
        c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (d, f)
        r = QuantizeLinear (c, t, p)
        y = DequantizeLinear (r, t, p)
      }"""
    model = parser.parse_model(text)
    weights = np.random.default_rng(0).integers(-60, 60, (8, 4, 3, 3), np.int8)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def test_a_converter_that_loses_a_quantized_pad_value_fails_its_own_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The border is padded with the stored value 0, which is not the zero point."""
    assert onnx_to_tflite(padded_convolution(), check="require").check.ok
    windows = importlib.import_module("onnxtfl.ir.window_padding")
    real = windows.pad_axes

    def lost(b: Any, x: Any, dims: Any, padding: Any, value: float | None = None) -> Any:
        found = x.type.quantization
        return real(b, x, dims, padding, value if found is None else -found.zero_points[0] * found.scales[0])

    monkeypatch.setattr(windows, "pad_axes", lost)
    with pytest.raises(CheckFailedError):
        onnx_to_tflite(padded_convolution(), check="require")
