"""The judge of random graphs reports conversions that are wrong, and no rounding that a later op made larger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import onnxtfl
from tests.fuzz import graphs_control, graphs_trial, tflite_trial
from tests.fuzz.drawing import Input, Values, fits_product
from tests.fuzz.graphs_judge import Arrays, difference, sum_overflows
from tests.fuzz.graphs_onnx import Drawing
from tests.fuzz.graphs_source import Source
from tests.fuzz.graphs_steps import Steps, noisy_steps, onnx_steps, tflite_steps
from tests.fuzz.soaking import Found
from tests.fuzz.tflite_drawing import Op, TfliteDrawing
from tests.harness.litert import Array, run_onnx

X = np.linspace(-4, 4, 60, dtype=np.float32).reshape(6, 10)
Change = Callable[[onnx.ModelProto], None]


@pytest.fixture(autouse=True)
def _runtimes() -> None:
    for module in ("onnxruntime", "ai_edge_litert"):
        pytest.importorskip(module, reason=f"{module} is not installed")


def of_onnx(*nodes: tuple[str, dict[str, Any]], x: Array = X) -> Drawing:
    """A chain of ONNX nodes."""
    g = Drawing(1)
    g.opset, name = 20, _given(g, x)
    for op, attributes in nodes:
        constants = [g.constant(c, np.float32) for c in attributes.pop("constants", ())]
        (name, *_) = g.node(op, [name, *constants], attributes.pop("results", 1), **attributes)
    return g


def of_tflite(*nodes: tuple[str, Sequence[str], dict[str, Any]], x: Array = X) -> TfliteDrawing:
    """A chain of TFLite ops, each with the dtype of its result."""
    g = TfliteDrawing(1)
    g.rankless, name = False, _given(g, x)
    for op, dtypes, options in nodes:
        constants = [g.constant(c) for c in options.pop("constants", ())]
        (name,) = g.op(op, [name, *constants], *dtypes, **options)
    return g


def _given(g: Values, x: Array) -> str:
    g.inputs["x"] = Input(str(x.dtype), x.shape, 0, 0, (x,))
    g.arrays["x"] = x
    return "x"


def break_reading(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Let a change of the source be what the conversion from ONNX does wrong."""
    real = onnxtfl.onnx_to_tflite

    def wrong(model: onnx.ModelProto, **options: Any) -> onnxtfl.Conversion:
        other = onnx.ModelProto.FromString(model.SerializeToString())
        change(other)
        return real(other, **options)

    monkeypatch.setattr(onnxtfl, "onnx_to_tflite", wrong)


def break_writing(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Let a change of the result be what the conversion to ONNX does wrong."""
    real = onnxtfl.tflite_to_onnx

    def wrong(data: bytes, **options: Any) -> onnxtfl.Conversion:
        from dataclasses import replace

        made = real(data, **options)
        model = onnx.ModelProto.FromString(made.data or b"")
        change(model)
        return replace(made, data=model.SerializeToString())

    monkeypatch.setattr(onnxtfl, "tflite_to_onnx", wrong)


def renamed(before: str, after: str) -> Change:
    def change(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            node.op_type = after if node.op_type == before else node.op_type

    return change


def _tanh(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.op_type = "Tanh"
        del node.attribute[:]


def renamed_inside(before: str, after: str) -> Change:
    """Nodes of regions are other ops."""

    def change(model: onnx.ModelProto) -> None:
        regions = [a.g for node in model.graph.node for a in node.attribute if a.HasField("g")]
        for node in (node for region in regions for node in region.node):
            node.op_type = after if node.op_type == before else node.op_type

    return change


def of_control(name: str) -> Drawing:
    """The first random graph of one If, Loop or Scan with a Tanh in each region."""
    for seed in range(100):
        g = Drawing(seed)
        graphs_control.STEPS[name](g)
        if g.empty or not g.nodes or g.nodes[-1].op_type != name:
            continue
        regions = [{n.op_type for n in a.g.node} for a in g.nodes[-1].attribute if a.HasField("g")]
        if all("Tanh" in ops for ops in regions):
            return g
    raise AssertionError(name)


@pytest.mark.parametrize("name", ["If", "Loop", "Scan"])
def test_a_wrong_conversion_of_a_region_is_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    g = of_control(name)
    assert graphs_trial.to_tflite(g).kind == "agree"
    break_reading(monkeypatch, renamed_inside("Tanh", "Erf"))
    assert graphs_trial.to_tflite(g).kind == "disagree"


def test_a_wrong_conversion_to_channels_last_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
    g = of_onnx(("MaxPool", {"kernel_shape": [2, 2]}), x=x)
    assert graphs_trial.to_channels_last(g).kind == "agree"
    real = onnxtfl.onnx_to_tflite

    def wrong(model: onnx.ModelProto, io_layout: str = "source", **options: Any) -> onnxtfl.Conversion:
        other = onnx.ModelProto.FromString(model.SerializeToString())
        if io_layout != "source":
            renamed("MaxPool", "AveragePool")(other)
        return real(other, io_layout=io_layout, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(onnxtfl, "onnx_to_tflite", wrong)
    assert graphs_trial.to_channels_last(g).kind == "disagree"


def scaled(factor: float) -> Change:
    """Constants of one float have another value."""

    def change(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            array = onnx.numpy_helper.to_array(tensor)
            if array.dtype == np.float32 and array.size == 1:
                tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(array * np.float32(factor)), tensor.name))

    return change


@pytest.mark.parametrize(
    ("before", "after", "chain"),
    [
        ("Ceil", "Round", [("Erf", {}), ("Ceil", {})]),
        ("ArgMax", "ArgMin", [("Gelu", {}), ("ArgMax", {"axis": 1})]),
        ("Softsign", "Tanh", [("Softsign", {}), ("DynamicQuantizeLinear", {"results": 3})]),
    ],
)
def test_wrong_conversions_from_onnx_are_reported(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str, chain: list[tuple[str, dict[str, Any]]]
) -> None:
    g = of_onnx(*((op, dict(attributes)) for op, attributes in chain), x=X + np.float32(0.3))
    assert graphs_trial.to_tflite(g).kind == "agree"
    break_reading(monkeypatch, renamed(before, after))
    assert graphs_trial.to_tflite(g).kind == "disagree"


@pytest.mark.parametrize(
    ("before", "after", "op", "dtypes", "options"),
    [
        ("Ceil", "Floor", "CEIL", (), {}),
        ("ArgMax", "ArgMin", "ARG_MAX", ("int32",), {"constants": [np.int32(1)], "output_type": "INT32"}),
        ("ReduceProd", "ReduceSum", "REDUCE_PROD", (), {"constants": [np.int32([1])]}),
    ],
)
def test_wrong_conversions_from_tflite_are_reported(
    monkeypatch: pytest.MonkeyPatch, before: str, after: str, op: str, dtypes: Sequence[str], options: dict[str, Any]
) -> None:
    g = of_tflite(("SIN", (), {}), (op, dtypes, dict(options)))
    assert tflite_trial.to_onnx(g).kind == "agree"
    break_writing(monkeypatch, renamed(before, after))
    assert tflite_trial.to_onnx(g).kind == "disagree"


@pytest.mark.parametrize(("factor", "kind"), [(1 - 2e-5, "doubtful"), (0.99, "disagree")])
def test_rounding_that_a_later_op_makes_larger(monkeypatch: pytest.MonkeyPatch, factor: float, kind: str) -> None:
    """2.00001 is rounded up, and a product that is wrong by 2e-5, within the tolerance, is 2."""
    x = np.asarray([2.00001, 0.5], np.float32)
    first = of_onnx(("Mul", {"constants": [[1.0]]}), ("Ceil", {}), x=x)
    break_reading(monkeypatch, scaled(factor))
    assert graphs_trial.to_tflite(first).kind == kind


def test_a_coarse_float16_kernel_is_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT computes GELU(-3.98) in float16 as -0: 1 + tanh(-5.4) has no digit left; ONNX Runtime is coarse too."""
    g = of_tflite(("GELU", (), {"approximate": True}), x=np.asarray([-3.984375, -3.59375, -3.5], np.float16))
    assert tflite_trial.to_onnx(g).kind == "source"
    break_writing(monkeypatch, _tanh)
    assert tflite_trial.to_onnx(g).kind == "disagree"


def test_runs_of_no_elements_are_not_judged_op_by_op() -> None:
    """A pool over nothing differs in its own way; the other runs show a coarse kernel all the same."""
    g = of_tflite(("GELU", (), {"approximate": True}), x=np.asarray([-3.984375, -3.59375, -3.5], np.float16))
    g.open, g.sizes = 1.0, {"N0": 7, "N1": 4, "N2": 5, "N3": 7}
    g.inputs["p"], g.arrays["p"] = Input("float32", tuple(g.sizes), -4, 4), np.ones((7, 4, 5, 7), np.float32)
    window = {"filter_height": 2, "filter_width": 2, "stride_h": 3, "stride_w": 2, "padding": "SAME"}
    assert g.op("L2_POOL_2D", ["p"], **window)
    assert tflite_trial.to_onnx(g).kind == "source"


def test_kernel_sets_that_differ_are_the_source() -> None:
    """The minimum of nothing is infinity in XNNPACK, as in ONNX, and the largest float in LiteRT's own kernel."""
    g = of_tflite(("REDUCE_MIN", (), {"constants": [np.int32([1])]}), ("SOFTMAX", (), {"beta": 1.0}))
    g.open, g.sizes = 1.0, {"N0": 10}
    g.inputs["x"] = Input("float32", (6, "N0"), -1, 1)
    assert tflite_trial.to_onnx(g).kind in ("source", "empty")


def test_products_of_floats_that_overflow_are_not_drawn() -> None:
    assert fits_product(np.full([4, 4], 4, np.float32))
    assert not fits_product(np.full([80], 4, np.float32))
    assert not fits_product(np.full([80], 4, np.int32))


@pytest.mark.parametrize(("x", "least", "most"), [(11.0, 0.05, 1.0), (0.5, 0.0, 1e-4)])
def test_noise_in_what_a_graph_of_constants_computes(x: float, least: float, most: float) -> None:
    """The cosine of 6e4 changes by 0.1 where its operand does by one part in a million; an input would not show it."""
    g = TfliteDrawing(1)
    g.rankless, name = False, g.constant(np.asarray([x], np.float32))
    for op in ("EXP", "COS"):
        (name,) = g.op(op, [name])
    noisy = noisy_steps(tflite_steps(g), lambda fed: {**g.arrays, **fed})
    changes = [noisy({}, 1e-6, seed)[name] - g.arrays[name] for seed in range(20)]
    assert least < np.abs(changes).max() < most


@pytest.mark.parametrize(("change", "agrees"), [(0.25, True), (0.5, False)])
def test_what_is_dequantized_may_differ_by_a_step(change: float, agrees: bool) -> None:
    steps = {"y": 0.25}
    wanted, found = np.asarray([1.5], np.float32), np.asarray([1.5 + change], np.float32)
    assert (difference({"y": found}, {"y": wanted}, {}, lambda *_: {"y": wanted}, steps) is None) == agrees
    assert difference({"y": found}, {"y": wanted}, {}, lambda *_: {"y": wanted}) is not None


def test_operands_that_do_not_fit_are_no_reference() -> None:
    """LiteRT's MATRIX_SET_DIAG does not check the diagonal, and STABLEHLO_SHIFT_LEFT does not repeat elements."""
    op = Op("MATRIX_SET_DIAG", ["x", "d"], ["y"], {})
    assert tflite_trial.operands_fit(op, [(2, 3, 4), (2, 3)])
    assert not tflite_trial.operands_fit(op, [(2, 3, 4), (2, 4)])
    op = Op("STABLEHLO_SHIFT_LEFT", ["x", "d"], ["y"], {})
    assert tflite_trial.operands_fit(op, [(2,), (2,)]) and not tflite_trial.operands_fit(op, [(2,), (1,)])


def test_sums_of_integers_that_overflow_are_no_reference() -> None:
    assert sum_overflows(np.asarray([-3, -(2**31)], np.int32))
    assert not sum_overflows(np.asarray([-3, -(2**31)], np.int64))
    assert not sum_overflows(np.asarray([1e30, 1e30], np.float32))


def test_noise_in_a_pool_whose_sizes_onnx_infers_otherwise() -> None:
    """The last window of a ceil_mode begins beyond the operand: ONNX counts it in opset 20, ONNX Runtime does not."""
    g = of_onnx(("MaxPool", {"kernel_shape": [1, 1], "strides": [2, 1], "ceil_mode": 1}), x=X.reshape(1, 1, 6, 10))
    source = Source(g.model())
    fed = {"x": g.arrays["x"]}
    (exact,), (noisy,) = source.run(fed).values(), source.noisy(fed, 1e-6, 0).values()
    assert noisy.shape == exact.shape == (1, 1, 3, 10) and 0 < np.abs(noisy - exact).max() < 1e-4


def test_scalars_are_judged_op_by_op() -> None:
    """LiteRT's Python API returns a scalar as a number of NumPy, which ONNX Runtime does not take."""
    g = of_onnx(("ReduceSum", {"keepdims": 0}), ("LeakyRelu", {"alpha": 1.5}))
    steps = Steps(onnx_steps(g), Source(g.model()).values)
    every = Source(g.model()).with_all_outputs().SerializeToString()
    fed = {"x": g.arrays["x"]}
    outputs = run_onnx(g.model().SerializeToString(), fed)

    def values(fed: Arrays) -> Arrays:
        return {name: array[()] for name, array in run_onnx(every, fed).items()}

    found = steps.judged(Found("disagree"), lambda _: outputs, values, [(fed, outputs)])
    assert found.kind == "doubtful"
