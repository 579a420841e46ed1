"""Models that amplify rounding are compared op by op: right conversions pass, and a wrong op is found and named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from onnxtfl import check, onnx_to_tflite
from onnxtfl.checking.criteria import op_by_op
from onnxtfl.checking.criteria.op_by_op import QUANTIZED, ROUNDS, SELECTED, UNUSUAL
from onnxtfl.checking.localize import engine as engines
from onnxtfl.checking.localize.coverage import Coverage, coverage, first_failure
from onnxtfl.checking.localize.engine import Engine, Layer
from onnxtfl.checking.localize.layers import FirstDifference
from onnxtfl.checking.metrics.comparison import Expectation, compare
from onnxtfl.checking.models.facts import Facts
from onnxtfl.checking.report import CheckReport, OutputCheck
from onnxtfl.checking.session import check_models
from onnxtfl.checking.settings import Settings
from onnxtfl.cli.check import check_command
from onnxtfl.cli.running import exit_code
from onnxtfl.formats.tflite import writer
from onnxtfl.ir.graph import Value
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.record import TensorEntry
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import tensor
from onnxtfl.metrics.noise import distance, is_amplified
from onnxtfl.runtimes import RunOptions
from onnxtfl.runtimes.adapters import ONNXRUNTIME
from onnxtfl.tracing.matches import Match, by_record
from onnxtfl.tracing.trace import InnerModel
from tests.unit.test_per_layer import renamed
from tests.unit.tiny_models import onnx_model, saved

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
SIZE, WIDE, LAYERS = 16, 64, 8
RANDOM = np.random.default_rng(0)
WEIGHTS = {f"w{k}": (12 * RANDOM.standard_normal((SIZE, SIZE))).astype(np.float32) for k in range(LAYERS)}
STEPS = {f"i{k}": RANDOM.integers(-99, 99, (WIDE, WIDE)).astype(np.int8) for k in range(LAYERS)}
FACTORS = {f"v{k}": RANDOM.standard_normal((WIDE, WIDE)).astype(np.float32) for k in range(LAYERS)}
KERNEL = RANDOM.standard_normal((3, 1, 3, 3)).astype(np.float32)


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"node_{output}", **attributes)


def amplifying(first: str) -> list[NodeProto]:
    """Layers of ``first`` [16, 16] to ``y``, each of which makes a difference about 50 times as large."""
    nodes, last = [], first
    for k in range(LAYERS):
        name = "y" if k == LAYERS - 1 else f"s{k}"
        nodes += [node("MatMul", f"{last} w{k}", f"m{k}"), node("Sin", f"m{k}", name)]
        last = name
    return nodes


def network() -> ModelProto:
    """An image [1, 1, 16, 16] through a convolution and an attention, then layers that amplify."""
    nodes = [
        node("Conv", "x k", "c", pads=[0, 0, 2, 2]),
        node("Relu", "c", "r"),
        node("Split", "r", "q", axis=1),
        node("Reshape", "q shape", "a"),
        node("Reshape", "b_ shape", "b"),
        node("Transpose", "b", "t", perm=[1, 0]),
        node("MatMul", "a t", "z"),
        node("Softmax", "z", "p", axis=1),
        *amplifying("p"),
    ]
    nodes[2].output.extend(["b_", "v_"])
    constants = {**WEIGHTS, "k": KERNEL, "shape": np.array([SIZE, SIZE], np.int64)}
    return onnx_model(nodes, [("x", FLOAT, (1, 1, SIZE, SIZE))], [("y", FLOAT, (SIZE, SIZE))], constants)


def quantizing() -> ModelProto:
    """Layers that amplify, each of which reads a tensor that is quantized at run time."""
    nodes: list[NodeProto] = []
    last = "x"
    for k in range(LAYERS):
        name = "y" if k == LAYERS - 1 else f"s{k}"
        product = node("MatMul", f"{last} v{k}", f"p{k}")
        quantize = helper.make_node("DynamicQuantizeLinear", [f"p{k}"], [f"q{k}", f"u{k}", f"z{k}"])
        integer = node("MatMulInteger", f"q{k} i{k} z{k} zero", f"n{k}")
        nodes += [product, quantize, integer, node("Cast", f"n{k}", f"f{k}", to=FLOAT)]
        nodes += [node("Mul", f"f{k} u{k}", f"m{k}"), node("Sin", f"m{k}", name)]
        last = name
    constants = {**STEPS, **FACTORS, "zero": np.array(3, np.int8)}
    return onnx_model(nodes, [("x", FLOAT, (WIDE, WIDE))], [("y", FLOAT, (WIDE, WIDE))], constants)


def changed(model: ModelProto, name: str, **attributes: Any) -> ModelProto:
    """The model with other attributes, or as ``op`` another op, of the node that computes ``name``."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    found = next(n for n in other.graph.node if name in n.output)
    found.op_type = attributes.pop("op", found.op_type)
    kept = [a for a in found.attribute if a.name not in attributes]
    del found.attribute[:]
    found.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in attributes.items())])
    return other


def constant(model: ModelProto, name: str, value: Any) -> ModelProto:
    """The model with another constant."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    found = next(t for t in other.graph.initializer if t.name == name)
    found.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
    return other


def without(model: ModelProto, name: str) -> ModelProto:
    """The model without the node that computes ``name``: its first operand takes its place."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    left_out = next(n for n in other.graph.node if name in n.output)
    before = left_out.input[0]
    other.graph.node.remove(left_out)
    for each in other.graph.node:
        each.input[:] = [before if i == name else i for i in each.input]
    return other


def against(source: ModelProto, converted: ModelProto) -> CheckReport:
    """The check of ``source`` with the conversion of another model."""
    return check(source, onnx_to_tflite(converted, check=False).data or b"")


@pytest.mark.parametrize("model", [network(), quantizing()], ids=["float", "quantized"])
def test_a_network_that_amplifies_rounding_agrees_op_by_op(model: ModelProto) -> None:
    report = onnx_to_tflite(model).check
    assert report is not None and report.ok, report
    (out,) = report.outputs
    assert out.accepted_by == "op-by-op" and out.max_abs is not None and out.max_abs > 0.1
    accepted = next(note for note in report.notes if note.startswith("accepted"))
    assert "tensors compared, of all ops between the inputs and the outputs that differ; largest error" in accepted


def test_why_outputs_may_differ_is_said() -> None:
    reports = [onnx_to_tflite(model).check for model in (network(), quantizing())]
    notes = [report.notes for report in reports if report is not None]
    assert any("the source's own outputs differ by" in note for note in notes[0])
    assert ROUNDS in notes[1]


WRONG = {
    "transpose": (network(), changed(network(), "t", perm=[0, 1]), "BATCH_MATMUL"),
    "softmax": (network(), changed(network(), "p", axis=0), "SOFTMAX"),
    "pads": (network(), changed(network(), "c", pads=[2, 2, 0, 0]), "CONV_2D"),
    "weights": (network(), constant(network(), "w5", WEIGHTS["w5"].T), "FULLY_CONNECTED"),
    "activation": (network(), changed(network(), "s4", op="Cos"), "COS"),
    "left out": (network(), without(network(), "s3"), "FULLY_CONNECTED"),
    "fused left out": (network(), without(network(), "r"), "SLICE"),
    "last": (network(), changed(network(), "y", op="Cos"), "COS"),
    "zero point": (quantizing(), constant(quantizing(), "zero", np.array(4, np.int8)), ""),
    "steps": (quantizing(), constant(quantizing(), "i4", STEPS["i4"][::-1]), ""),
    "a step left out": (quantizing(), without(quantizing(), "m2"), ""),
    "quantized activation": (quantizing(), changed(quantizing(), "s5", op="Cos"), "COS"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_op_in_such_a_network_is_found(wrong: str) -> None:
    source, other, op = WRONG[wrong]
    report = against(source, other)
    assert report.status == "failed" and report.first_difference is not None, report.notes
    assert op in report.first_difference.op, report.first_difference
    assert report.first_difference.error_in == 0


def test_an_error_of_the_last_layer_only_is_found() -> None:
    """It is much smaller than what rounding makes of the outputs."""
    report = against(network(), constant(network(), "w7", WEIGHTS["w7"] * np.float32(1.01)))
    assert report.status == "failed" and report.first_difference is not None
    assert report.first_difference.a in ("m7", "y")


def test_models_whose_tensors_do_not_correspond_are_not_accepted() -> None:
    """The only tensors that both have are inputs and outputs: nothing is compared op by op."""
    report = check(network(), renamed(onnx_to_tflite(network(), check=False).data or b""))
    assert report.status == "failed" and report.first_difference is None
    assert any("not compared op by op" in note for note in report.notes)


def test_outputs_that_differ_by_more_than_the_noise_are_not_looked_at(tmp_path: Path) -> None:
    nodes, specs = [node("Mul", "x f", "h"), node("Exp", "h", "y")], [("x", FLOAT, (4, 4))]
    models = [onnx_model(nodes, specs, [("y", FLOAT, (4, 4))], {"f": np.array(f, np.float32)}) for f in (1.0, 1.1)]
    report = against(*models)
    assert report.status == "failed" and not any("op by op" in note for note in report.notes)


def best_of(type_: int) -> ModelProto:
    """The rows of a table at the eight largest of ``x + 100``, computed in ``type_``: in float16, many are equal."""
    nodes = [
        node("Cast", "x", "h", to=type_),
        node("Add", "h o", "s"),
        node("Add", "s p", "v"),
        helper.make_node("TopK", ["v", "k"], ["values", "at"]),
        node("Gather", "table at", "y"),
    ]
    kind = np.float16 if type_ == HALF else np.float32
    constants = {"o": np.array(100, kind), "p": np.array(-100, kind), "k": np.array([8], np.int64)}
    table = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    outputs = [("y", FLOAT, (8,)), ("at", TensorProto.INT64, (8,))]
    return onnx_model(nodes, [("x", FLOAT, (64,))], outputs, {**constants, "table": table})


def test_positions_of_elements_that_are_equal_in_float16_only() -> None:
    report = onnx_to_tflite(best_of(HALF)).check
    assert report is not None and report.ok, report


def test_wrong_positions_are_found() -> None:
    other = changed(best_of(HALF), "at", largest=0)
    assert against(best_of(HALF), other).status == "failed"


def test_few_kept_tensors_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not kept is computed again."""
    monkeypatch.setattr(engines, "KEPT", 0)
    monkeypatch.setattr(Engine, "_batch", 1)
    report = onnx_to_tflite(quantizing()).check
    assert report is not None and report.ok and report.outputs[0].accepted_by == "op-by-op"


def test_with_open_sizes(tmp_path: Path) -> None:
    model = network()
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param = "n"
    model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(np.array([-1, SIZE], np.int64), "shape"))
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "m"
    report = onnx_to_tflite(model).check
    assert report is not None and report.ok, report


def test_other_kernels_are_not_compared_where_that_takes_long(tmp_path: Path) -> None:
    made = onnx_to_tflite(network(), tmp_path / "m.tflite", check=False)
    assert made.record is not None
    path = saved(network(), tmp_path / "m.onnx")
    report = check_models(path, tmp_path / "m.tflite", Settings(patience=0.0, tensors=made.record.tensors))
    assert report.ok
    assert any(note.startswith("builtin kernels not checked: outputs differ") for note in report.notes)
    report = check_models(path, tmp_path / "m.tflite", Settings(patience=None, tensors=made.record.tensors))
    assert report.ok and not any("not checked" in note for note in report.notes)


@pytest.mark.parametrize("wrong", [False, True])
def test_exit_code_and_reports(tmp_path: Path, wrong: bool, capsys: pytest.CaptureFixture[str]) -> None:
    saved(network(), tmp_path / "a.onnx")
    other = changed(network(), "s4", op="Cos") if wrong else network()
    onnx_to_tflite(other, tmp_path / "b.tflite", check=False)
    files = [str(tmp_path / name) for name in ("a.onnx", "b.tflite", "r.json", "r.xml")]
    assert exit_code(check_command, [*files[:2], "--json", files[2], "--junit", files[3]]) == (3 if wrong else 0)
    said = " ".join(capsys.readouterr().out.split())
    found = json.loads(Path(files[2]).read_text())
    assert found["status"] == ("failed" if wrong else "passed")
    assert (found["first_difference"] or {}).get("op") == ("COS" if wrong else None)
    assert ("first difference: COS" if wrong else "accepted op by op") in said
    assert f'failures="{int(wrong)}"' in Path(files[3]).read_text()


def layer(number: int, read: list[int], ok: bool | None = True) -> Layer:
    found = None if ok is None else OutputCheck("", ok, "float32", (1,))
    return Layer(Match(number, number), [], read, 0.0, None if ok is None else 0.5, found)


def test_all_ops_up_to_an_output_have_to_be_covered() -> None:
    right = [layer(1, [0]), layer(2, [1]), layer(3, [1, 2])]
    assert coverage(right, [3]).agrees and len(coverage(right, [3]).layers) == 3
    assert not coverage(right, [4]).agrees
    assert not coverage([], [3]).agrees
    for ok in (False, None):
        assert not coverage([*right[:1], layer(2, [1], ok), right[2]], [3]).agrees
        assert coverage([*right, layer(5, [2], ok)], [3]).agrees  # no output is computed of it


def test_the_rounding_of_an_op_is_no_first_difference() -> None:
    """The largest of errors that are all rounding says nothing."""
    layers = [layer(number, []) for number in range(5)]
    for found, error in zip(layers, (0.0, 0.0, 1e-7, 0.0, 0.0), strict=True):
        found.own = error
    assert first_failure(layers) is None
    layers[3].own = 1e-3
    assert first_failure(layers) is layers[3]


def test_the_size_of_tensors_with_open_sizes(tmp_path: Path) -> None:
    """By it, batches of tensors fit into memory."""
    model = onnx_model(
        [node("Exp", "x", "h"), node("Abs", "h", "y")], [("x", FLOAT, ("n", 4))], [("y", FLOAT, ("n", 4))]
    )
    x = np.zeros((50, 4), np.float32)
    with ONNXRUNTIME.worker() as worker:
        inner = InnerModel(saved(model, tmp_path / "m.onnx"), "onnx", worker, [x], RunOptions(), tmp_path)
        assert [inner.nbytes(number) for number in range(3)] == [x.nbytes] * 3


def test_distances() -> None:
    x = np.float32([1, 2, np.inf])
    assert distance(x, x) == 0
    assert distance(np.float32([3, 4]), np.float32([3, 6])) == pytest.approx(2**0.5)
    assert distance(x, x[:2]) == distance(x, np.float32([1, 2, 3])) == distance(x, np.int32([1, 2, 3])) == np.inf
    assert distance(np.int32([1, 2, 3, 4]), np.int64([1, 2, 0, 4])) == 0.25
    assert distance(np.array(["a", "b"], object), np.array(["a", "c"], object)) == 0.5


@pytest.mark.parametrize("op", ["Sub", "Div"])
def test_tensors_without_a_finite_value_say_nothing(op: str) -> None:
    """The difference and the quotient of two infinities are NaN."""

    def infinite(op: str) -> ModelProto:
        model = without(network(), "y")
        tail = [
            node("Div", "m7 none", "i"),
            node("Abs", "i", "j"),
            node(op, "j j", "n"),
            node("Concat", "n m7", "y", axis=0),
        ]
        model.graph.node.extend(tail)
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.float32), "none"))
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2 * SIZE
        return model

    report = against(infinite("Sub"), infinite(op))
    assert report.status == "failed", report
    assert any("no finite value" in note for note in report.notes)


def test_saturated_activations_are_compared_on_smaller_values_too() -> None:
    """Where all values are large, a Sigmoid is 0 or 1, and so is a HardSigmoid."""

    def saturated(op: str) -> ModelProto:
        model = network()
        last = model.graph.node[-1]
        last.output[0] = "s7"
        large = np.array([1e5], np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(large, "large"))
        model.graph.node.extend([node("Mul", "s7 large", "l"), node(op, "l", "g"), node("Add", "g s7", "y")])
        return model

    report = onnx_to_tflite(saturated("Sigmoid")).check
    assert report is not None and report.ok, report
    report = against(saturated("Sigmoid"), saturated("HardSigmoid"))
    assert report.status == "failed" and report.first_difference is not None, report
    assert report.first_difference.a == "g"


def test_noise_that_is_small_beside_an_output_is_no_amplification() -> None:
    """That of a float16 network is 7e-4 of its logits; errors beyond the tolerance are errors there."""
    x = np.asarray([1.0, -2.0, 3.0, np.nan], np.float32)
    assert not is_amplified(2e-3, x)
    assert is_amplified(0.2, x)
    assert is_amplified(1e-3, np.arange(4))
    assert not is_amplified(0.0, np.arange(4))


def test_a_layer_is_judged_again_by_what_the_first_model_computes_of_the_same_values(monkeypatch) -> None:
    """One of two that differ agrees then; the other one keeps its first comparison."""

    def judged(self: object, layer: Layer, expected: np.ndarray, got: np.ndarray, known: object) -> None:
        layer.own, layer.check = 0.5, compare("t", expected, got, Expectation())

    monkeypatch.setattr(Engine, "_judge", judged)
    again = {0: np.float32([1, 2]), 1: np.float32([1, 2])}
    alone = {10: np.float32([1, 2]), 11: np.float32([1, 3])}
    each = object.__new__(Engine)
    each.a = SimpleNamespace(isolated=lambda values, wanted: again)
    each.converter = SimpleNamespace(made=lambda match, array, like: array)
    each._values = {}
    first = OutputCheck("t", False, "float32", (2,), message="before")
    layers = [Layer(Match(k, 10 + k), [], [], 0.0, own=0.25, check=first) for k in (0, 1)]
    each._judge_again(layers, alone, {})
    assert layers[0].check is not None and layers[0].check.ok and layers[0].own == 0.5
    assert layers[1].check is first and layers[1].own == 0.25


@pytest.mark.parametrize("exact", [True, False], ids=["the kernel's own", "a lost bias"])
def test_a_mean_error_of_the_kernel_is_none_of_the_conversion(monkeypatch, exact: bool) -> None:
    """The op's semantics, with its own constants, have no mean error where only the kernel rounds to one side."""
    expected = np.arange(-100, 100).astype(np.int8)
    biased = expected + np.int8(1)
    grid = Quantization("int8", (0.5,), (0,))

    def judged(self: object, layer: Layer, wanted: np.ndarray, got: np.ndarray, known: object) -> None:
        layer.own, layer.check = 0.5, compare("t", wanted, got, Expectation(quantization_a=grid))

    monkeypatch.setattr(Engine, "_judge", judged)
    monkeypatch.setattr(Engine, "_by_semantics", lambda *_: expected if exact else biased)
    each = object.__new__(Engine)
    each.b = SimpleNamespace(format="tflite")
    layer = Layer(Match(0, 10), [], [], 0.0)
    judged(each, layer, expected, biased, {})
    assert layer.check is not None and layer.check.biased
    each._judge_by_semantics([layer], {10: biased}, {10: expected})
    assert layer.check.ok == exact


@pytest.mark.parametrize(
    ("facts", "unusual", "agrees", "why"),
    [
        (Facts(), True, False, UNUSUAL),
        (Facts(selects=True), False, True, SELECTED),
        (Facts(selects=True), False, False, ""),
        (Facts(), False, True, ""),
        (Facts(rounds=True), False, False, ROUNDS),
        (Facts(quantized=True), False, False, QUANTIZED),
    ],
)
def test_why_outputs_may_differ_though_the_conversion_is_correct(
    monkeypatch: pytest.MonkeyPatch, facts: Facts, unusual: bool, agrees: bool, why: str
) -> None:
    """`agrees`: with the selections of the first model, the outputs do."""
    monkeypatch.setattr(op_by_op, "_selects_alike", lambda *_: agrees)
    x = np.arange(400, dtype=np.float32).reshape(1, 100, 4)
    attempt: Any = SimpleNamespace(
        a=SimpleNamespace(facts=facts),
        b=SimpleNamespace(facts=Facts(rounds=True)),  # in float, as types without kernels are
        is_unusual=unusual,
        reference=SimpleNamespace(runs=[SimpleNamespace(outputs=[x])], others=lambda number: [[x]]),
        out_pairs=[SimpleNamespace(a=0, b=0)],
        alone=[[x + 1]],
        ways=lambda *_: [(0,)],
    )
    assert op_by_op._why(attempt, {0: [0]}, {0: attempt}) == why


def difference(name: str) -> FirstDifference:
    """A difference at a tensor of this name in both models."""
    return FirstDifference(name, name, name, "ADD", 0.1, 0.0)


def test_wrong_elements_come_before_a_mean_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with a mean error of its own is not named where another op is wrong, nor does it reject the outputs."""

    def layer(number: int, biased: bool) -> Layer:
        check = OutputCheck("t", False, "int8", (2,), message="off", biased=biased)
        return Layer(Match(number, number), [], [], 0.0, own=0.1, check=check)

    layers = [layer(0, True), layer(1, False), layer(2, False)]
    assert first_failure(layers) is layers[1]
    assert first_failure(layers[:1]) is layers[0]
    monkeypatch.setattr(op_by_op.naming, "difference", lambda each, wrong: difference(str(wrong.match.b)))
    each = SimpleNamespace(b=SimpleNamespace(number={}, graph=SimpleNamespace(outputs=[])))
    ruling = op_by_op.OpByOp()._refused(each, Coverage(layers, []), [0], "")
    assert ruling.first_difference == difference("1")


@pytest.mark.parametrize("tflite_is_first", [True, False])
def test_a_real_tensor_that_is_quantized_in_the_other_model_is_not_compared(tflite_is_first: bool) -> None:
    """The .tflite says whether it is real: the values of an ONNX model have no scale."""
    grid = Quantization("int8", (0.5,), (0,))

    def model(format_: str, quantization: Quantization | None) -> Any:
        type_ = replace(tensor("float32", 4), quantization=quantization)
        value = Value(type_)
        value.name = "t"
        return SimpleNamespace(format=format_, values=[value], changing={0})

    def matches(of_tflite: Quantization | None, recorded: str | None) -> int:
        models = [model("tflite", of_tflite), model("onnx", None)]
        entries = [TensorEntry("t", "t", quantization=recorded)]
        return len(by_record(*(models if tflite_is_first else models[::-1]), entries, back=False))

    assert matches(None, "int8 0.5:0") == 0
    assert matches(grid, "int8 0.5:0") == 1
    assert matches(None, None) == 1


def test_a_source_that_is_not_defined_inside_says_nothing_on_unusual_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 / 0 that is quantized becomes any integer: nothing can be said of what is computed of it."""
    wrong = OutputCheck("t", True, "float32", (2,), note="no finite value to compare", compared=False)
    covered = Coverage([Layer(Match(0, 0), [], [], 0.0, check=wrong)], [])
    values = {0: SimpleNamespace(name="t")}
    engine = SimpleNamespace(b=SimpleNamespace(number={}, values=values, graph=SimpleNamespace(outputs=[])))
    monkeypatch.setattr(op_by_op, "_compared", lambda *_: (engine, covered))
    for is_unusual in (True, False):
        attempt: Any = SimpleNamespace(is_unusual=is_unusual, settings=SimpleNamespace(patience=None))
        ruling = op_by_op.OpByOp()._judged(attempt, [0], {0: [0]}, {0: attempt}, "")
        assert not ruling.judgments and bool(ruling.unfinished) == is_unusual


_SUM = "tensor<4xfloat32, quant<int8 0.1:0>>"


def running_sum(largest: int, folder: Path) -> Path:
    """A .tflite that adds up its inputs, up to `largest` steps."""
    path = folder / f"{largest}.tflite"
    graph = parse_graph(f"""graph main(%x: tensor<4xfloat32, quant<int8 0.04:0>>) -> (%y) {{
      tfl.CALL_ONCE@1() {{init_subgraph_index = graph init() -> () {{
        %h = tfl.VAR_HANDLE@1() {{container = "", shared_name = "n"}} : resource<variable>
        %i = constant {_SUM} [0, 0, 0, 0]
        tfl.ASSIGN_VARIABLE@1(%h, %i)
      }}}}
      %v = tfl.VAR_HANDLE@1() {{container = "", shared_name = "n"}} : resource<variable>
      %a = tfl.READ_VARIABLE@1(%v) : {_SUM}
      %s = tfl.ADD@2(%a, %x) {{fused_activation_function = "NONE"}} : {_SUM}
      tfl.ASSIGN_VARIABLE@1(%v, %s)
      %c = constant {_SUM} [{", ".join([str(largest)] * 4)}]
      %y = tfl.MINIMUM@2(%s, %c) : {_SUM}
    }}""")
    with path.open("wb") as file:
        writer.write(Model(graph, "tflite"), file)
    return path


def test_what_is_wrong_in_later_states_only_is_no_rounding(tmp_path: Path) -> None:
    """No first sum is beyond 60 steps, so that each op agrees there, exactly: nothing is amplified."""
    right, wrong = running_sum(127, tmp_path), running_sum(60, tmp_path)
    assert check(right, right).ok
    assert check(right, wrong).status == "failed"
