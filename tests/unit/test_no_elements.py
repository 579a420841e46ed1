"""Sizes of 0, which the table of kernels decides: in the file, and open ones that the report names."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tools.probe.case import Case
from tools.probe.empty import empty_cases_of, empty_rows
from tools.probe.judge import judge
from tools.probe.measure import Finding
from tools.probe.runtime import Runtime
from tools.probe.summary import KERNEL_SETS

import onnxtfl
from onnxtfl.errors import InvalidModelError, OnnxtflError
from onnxtfl.targets import table
from tests.fuzz.tflite_drawing import Scale
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.onnx_nodes import agrees_on
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert
from tests.unit.tiny_models import onnx_model

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
FAILING = [op for op in table.op_names() if table.failures_at_zero(op)]


def one_of_each_place(op: str) -> list[Case]:
    """A case for each place where the kernel fails, with the size of 0 in the file."""
    cases: dict[str, Case] = {}
    for case in empty_cases_of(op):
        if case.mode in table.failures_at_zero(op) and not case.open:
            cases.setdefault(case.mode, case)
    return list(cases.values())


@pytest.mark.parametrize("op", FAILING)
def test_a_size_of_0_in_the_file_is_computed_or_refused(op: str, probed: Runtime) -> None:
    """To ONNX and back: no kernel of the result ends the process, and known values are computed."""
    for case in one_of_each_place(op):
        try:
            onnx = onnxtfl.tflite_to_onnx(case.model(), check=False, load=False).data
            assert onnx is not None
            model = onnxtfl.onnx_to_tflite(onnx, check=False, load=False).data
        except OnnxtflError as error:
            assert not str(error).startswith("internal error"), case.mode
            continue
        assert model is not None
        for kernels in ("xnnpack", "builtin"):
            verdict = judge(case, *probed.run(kernels, model, case.inputs()))
            known = case.extra["known"] and op != "MEAN"  # of no floats, NaN in LiteRT and 0 in ONNX Runtime
            assert verdict != "abort" and (verdict == "correct" or not known), (case.mode, kernels)


def test_the_mean_of_nothing_is_0_as_in_onnx_runtime() -> None:
    mean = helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])
    from_onnx = onnxtfl.onnx_to_tflite(onnx_model([mean], [("x", FLOAT, [2, 0])], [("y", FLOAT, None)]), check=False)
    assert from_onnx.data is not None
    assert dict(run_tflite(from_onnx.data, [np.zeros((2, 0), np.float32)]))["y"].tolist() == [[0], [0]]


def assumed(node, shape, constants=None, others=()) -> tuple[str, ...]:
    """What the report of a model of one node, or several, says is assumed."""
    nodes = node if isinstance(node, list) else [node]
    model = onnx_model(nodes, [("x", FLOAT, shape), *others], [("y", FLOAT, None)], constants)
    return onnxtfl.onnx_to_tflite(model, check=False, load=False).report.assumptions


def test_the_report_names_open_sizes_that_a_kernel_needs() -> None:
    softmax = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    assert assumed(softmax, ["batch", "words"]) == ("words is at least 1: on empty tensors, SOFTMAX ends the process",)
    assert assumed(softmax, ["batch", 10]) == ()
    assert assumed(helper.make_node("Relu", ["x"], ["y"]), ["batch", "words"]) == ()


def test_one_line_for_all_ops_and_sizes() -> None:
    mean = helper.make_node("ReduceMean", ["x"], ["m"], axes=[2, 3], keepdims=0)
    softmax = helper.make_node("Softmax", ["m"], ["y"], axis=-1)
    (line,) = assumed([mean, softmax], [1, "words", "height", "width"])
    assert line == (
        "height, width, words are at least 1: on empty tensors, SOFTMAX ends the process, MEAN returns wrong results"
    )


def test_sizes_that_a_kernel_refuses_are_not_named() -> None:
    """The runtime says that a convolution has no input, before anything else runs."""
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    mean = helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3])
    assert assumed([conv, mean], [1, 3, "height", "width"], {"w": np.ones((4, 3, 3, 3), np.float32)}) == ()


def test_a_size_that_is_never_0_is_not_named() -> None:
    pad = helper.make_node("Pad", ["x", "p"], ["a"])
    softmax = helper.make_node("Softmax", ["a"], ["y"], axis=-1)
    assert assumed([pad, softmax], [2, "words"], {"p": np.array([0, 1, 0, 0], np.int64)}) == ()


def test_the_rows_of_the_table_have_the_worst_verdict() -> None:
    def finding(mode: str, known: bool, **verdicts: str) -> Finding:
        found = dict.fromkeys(KERNEL_SETS, "correct") | {k.replace("_", " "): v for k, v in verdicts.items()}
        return Finding({}, {"known": known}, 2, mode, found)

    found = [
        finding("last", True, litert_xnnpack="refused", litert_builtin="abort"),
        finding("first", False, litert_builtin="wrong"),
        finding("filled", True, litert_reference="abort"),
    ]
    assert empty_rows("ADD", found) == ['{ axis = "last", verdict = "abort", kernels = "litert builtin" }']


def test_a_pool_without_a_batch_has_sizes_from_memory_that_was_never_written() -> None:
    """XNNPACK refuses most of them: that is no measurement of what it computes."""
    found = [
        Finding({}, {"known": True}, 4, "first", dict.fromkeys(KERNEL_SETS, "correct") | {"litert xnnpack": v})
        for v in ("refused", "correct")
    ]
    assert empty_rows("MAX_POOL_2D", found) == ['{ axis = "first", verdict = "wrong", kernels = "litert xnnpack" }']
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
    assert assumed(pool, ["batch", 2, 4, 4]) == (
        "batch is at least 1: on empty tensors, MAX_POOL_2D returns wrong results",
    )


@pytest.mark.parametrize("op", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("length", [0, "length"])
def test_a_layer_over_no_steps(op: str, length: int | str, probed: Runtime) -> None:
    """The last state is the first one; that an LSTM or RNN of open length has a step is assumed."""
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op]
    weights = {"w": np.ones((1, gates * 3, 2), np.float32), "r": np.ones((1, gates * 3, 3), np.float32)}
    node = helper.make_node(op, ["x", "w", "r"], ["", "y"], hidden_size=3)
    model = onnx_model([node], [("x", FLOAT, [length, 1, 2])], [("y", FLOAT, None)], weights)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    assert conversion.data is not None
    is_assumed = any("length is at least 1" in text for text in conversion.report.assumptions)
    assert is_assumed == (op != "GRU" and length != 0)
    status, answer = probed.run("builtin", conversion.data, [np.zeros((0, 1, 2), np.float32)])
    assert status == "ran"
    if not is_assumed:
        np.testing.assert_array_equal(answer[0], np.zeros((1, 1, 3), np.float32))


def test_attention_of_head_size_0_is_refused() -> None:
    node = helper.make_node("Attention", ["x", "x", "x"], ["y"])
    model = onnx_model([node], [("x", FLOAT, [1, 2, 3, 0])], [("y", FLOAT, None)], opset=23)
    with pytest.raises(InvalidModelError, match="cannot be reshaped to"):
        onnxtfl.onnx_to_tflite(model)


def test_a_slice_of_six_axes_two_of_which_are_open() -> None:
    node = helper.make_node("Slice", ["x", "s", "e"], ["y"])
    bounds = {"s": np.array([1] * 6), "e": np.array([2] * 6)}
    model = onnx_model([node], [("x", FLOAT, ["a", "b", 2, 2, 3, 4])], [("y", FLOAT, None)], bounds)
    assert onnxtfl.onnx_to_tflite(model, check="require").data


def test_large_products_of_integers_are_computed_in_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxtfl.mappings.math import contraction

    monkeypatch.setattr(contraction, "_MOST_PRODUCTS", 100)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = onnx_model([node], [("x", INT32, [7, 4]), ("w", INT32, [4, 5])], [("y", INT32, [7, 5])])
    assert onnxtfl.onnx_to_tflite(model, check="require").report.ops_after["SUM"] == 2


def test_integer_products_that_would_take_hours_are_refused() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    sizes = [9000, 9000]
    model = onnx_model([node], [("x", INT64, sizes), ("w", INT64, sizes)], [("y", INT64, sizes)])
    with pytest.raises(OnnxtflError, match="729000000000 multiplications"):
        onnxtfl.onnx_to_tflite(model)


def test_a_mean_loss_of_no_elements_is_zero() -> None:
    """As ONNX Runtime computes it."""
    scores, classes = np.zeros([1, 4, 0], np.float32), np.zeros([1, 0], np.int64)
    inputs = {"x": scores, "t": classes}
    given = [helper.make_tensor_value_info("x", 1, [1, 4, 0]), helper.make_tensor_value_info("t", 7, [1, 0])]
    node = helper.make_node("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], reduction="mean")
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", 1, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    assert run_onnx(model, inputs)["y"] == 0
    assert run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", inputs)[0][1] == 0


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ReverseSequence", [("x", FLOAT, ["N", 0]), ("lengths", INT64, [0])]),
        ("Softmax", [("x", FLOAT, ["N", 0])]),
        ("Add", [("x", FLOAT, ["N", 0]), ("other", FLOAT, [1, 1])]),
        ("Hardmax", [("x", FLOAT, ["N", 0])]),
    ],
)
def test_what_has_no_elements_but_open_sizes_is_no_work_for_a_kernel(op: str, inputs: list) -> None:
    from tests.harness.litert import run_tflite

    model = onnx_model([helper.make_node(op, [name for name, *_ in inputs], ["y"])], inputs, [("y", FLOAT, None)])
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    fed = {"x": np.zeros((3, 0), np.float32), "lengths": np.zeros(0, np.int64), "other": np.ones((1, 1), np.float32)}
    fed = {name: fed[name] for name, *_ in inputs}
    for kernels in ("default", "builtin"):
        (_, found), *_ = run_tflite(result, list(fed.values()), kernels=kernels)
        assert found.shape == (3, 0)


@pytest.mark.parametrize("op", ["Min", "Identity"])
def test_a_copy_of_no_elements_keeps_its_open_size(op: str) -> None:
    model = onnx_model([helper.make_node(op, ["x"], ["y"])], [("x", FLOAT, [0, 2, "N"])], [("y", FLOAT, None)])
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, np.zeros((0, 2, 0), np.float32))


@pytest.mark.parametrize("shape", [[2, 0], ["N", 0]])
def test_an_output_of_no_elements_that_is_an_input_stays_it(shape: list) -> None:
    """In ONNX both have one name; in TFLite the output is a copy."""
    value = ("a", FLOAT, shape)
    model = onnx_model([helper.make_node("Neg", ["a"], ["y"])], [value], [value, ("y", FLOAT, shape)])
    there = onnxtfl.onnx_to_tflite(model, check=False).data
    back = onnx.load_from_string(onnxtfl.tflite_to_onnx(there, check=False).data)
    assert [output.name for output in back.graph.output] == ["a", "y"]


@pytest.mark.parametrize("op", ["Unique", "NonZero"])
def test_nothing_has_no_distinct_elements(op: str) -> None:
    """Of a size that is known only at run time, a kernel after it would end the process."""
    nodes = [
        helper.make_node(op, ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["f"], to=FLOAT),
        helper.make_node("LogSoftmax", ["f"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", FLOAT, [0])], [("y", FLOAT, None)])
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, np.zeros(0, np.float32))


def test_an_empty_quantized_result() -> None:
    """It is a constant, and as an output a copy of it."""

    def build(g: TfliteGraph) -> Any:
        x = g.given(np.zeros([2, 1, 0]), "int8")
        g.quantized[x] = Scale((0.25,), (51,))
        g.quantized["v0_0"] = g.quantized[x]
        return g.op("TRANSPOSE", [x, g.constant([0, 2, 1], "int32")], rank=3)

    assert_same_as_litert(build)


@pytest.mark.parametrize(("op", "options"), [("MATRIX_DIAG", {}), ("EXP", {})])
def test_an_open_size_beside_one_of_0(op: str, options: dict[str, Any]) -> None:
    empty = np.zeros((2, 0, 3), np.float32)
    assert_same_as_litert(lambda g: g.op(op, [g.given(empty, open_axes=[0])], **options), [(5, 0, 3)])


def test_a_scan_over_a_batch_of_no_rows() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[0, 2] first, float[4, 0, 2] x) => (float[n, m] last, float[k, n, m] all) <float[0, 2] w = {}> {
        last, all = Scan <num_scan_inputs = 1, body = step (float[b, 2] h, float[b, 2] row) => (float[b, 2] next,
            float[b, 2] out) { a = Add (row, w)  s = Mul (a, h)  next = Tanh (s)  out = Identity (next) }> (first, x)
    }"""
    made = onnxtfl.onnx_to_tflite(onnx.parser.parse_model(text).SerializeToString(), check=False)
    assert made.data


FOUND = {
    "Conv": helper.make_node("Conv", ["f", "w", "b"], ["y"], pads=[1, 1, 1, 1]),
    "depthwise Conv": helper.make_node("Conv", ["f", "d", "b"], ["y"], group=4),
    "MaxPool": helper.make_node("MaxPool", ["f"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    "AveragePool": helper.make_node("AveragePool", ["f"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    "DepthToSpace": helper.make_node("DepthToSpace", ["f"], ["y"], blocksize=2),
}


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("op", FOUND)
def test_no_object_is_found(op: str, count: int) -> None:
    """The number of rows is known only at run time: that of the objects in an image, often 0."""
    nodes = [
        helper.make_node("NonZero", ["score"], ["places"]),
        helper.make_node("Squeeze", ["places", "zero"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["f"]),
        FOUND[op],
        helper.make_node("Shape", ["y"], ["sizes"]),
    ]
    random = np.random.default_rng(0)
    weights = {
        "zero": np.zeros(1, np.int64),
        "w": random.normal(size=(4, 4, 3, 3)).astype(np.float32),
        "d": random.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "b": random.normal(size=4).astype(np.float32),
    }
    used = {name: array for name, array in weights.items() if name in (*FOUND[op].input, "zero")}
    outputs = [("y", FLOAT, [None] * 4), ("sizes", INT64, (4,))]
    model = onnx_model(nodes, [("x", FLOAT, (5, 4, 6, 6)), ("score", FLOAT, (5,))], outputs, used)
    x, score = random.normal(size=(5, 4, 6, 6)).astype(np.float32), (np.arange(5) < count).astype(np.float32)
    expected = run_onnx(model.SerializeToString(), {"x": x, "score": score})
    for name, array in run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, {"x": x, "score": score}):
        assert array.shape == expected[name].shape
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [0, 2])
def test_quantized_rows_that_are_found(count: int) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 3, 6, 6] x, float[4] score) => (float[a, b, c, d] y)
        <int64[1] zero = {0}, float s = {0.02}, int8 z = {3}, int8[2, 3, 1, 1] w = {9, -20, 30, -40, 50, 60}> {
        places = NonZero (score)  rows = Squeeze (places, zero)
        q = QuantizeLinear (x, s, z)  some = Gather (q, rows)  f = DequantizeLinear (some, s, z)
        i = Cast <to = 3> (zero)  zw = Squeeze (i)  k = DequantizeLinear (w, s, zw)
        c = Conv (f, k)  p = QuantizeLinear (c, s, z)  y = DequantizeLinear (p, s, z) }"""
    model = onnx.parser.parse_model(text)
    x = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)
    feed = {"x": x, "score": (np.arange(4) < count).astype(np.float32)}
    expected = run_onnx(model.SerializeToString(), feed)["y"]
    ((_, got),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed)
    assert got.shape == expected.shape
    assert np.max(np.abs(got - expected), initial=0) <= 0.021  # one step


def test_sizes_computed_from_values_before_rows_are_gathered() -> None:
    """As masks of objects are resized to their boxes."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1, 1, 8, 8] x, int64[2] s) => (float[a, b] y)
        <int64 zero = {0}, int64[2] ones = {1, 1}> {
        sizes = Concat <axis = 0> (ones, s)
        r = Resize <coordinate_transformation_mode = "half_pixel", mode = "linear"> (x, , , sizes)
        a = Gather <axis = 0> (r, zero)  y = Gather <axis = 0> (a, zero) }"""
    model = onnx.parser.parse_model(text)
    feed = {"x": np.random.default_rng(0).normal(size=(1, 1, 8, 8)).astype(np.float32), "s": np.array([5, 13])}
    expected = run_onnx(model.SerializeToString(), feed)["y"]
    ((_, got),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [0, 2])
def test_rows_that_are_found_times_a_matrix(count: int) -> None:
    """As an expert for which no token is chosen: 64 x 128 elements are multiplied by XNNPACK."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4, 64] x, float[4] score) => (float[a, 128] y)
        <int64[1] zero = {0}> {
        places = NonZero (score)  rows = Squeeze (places, zero)  some = Gather (x, rows)  y = MatMul (some, w) }"""
    model, random = onnx.parser.parse_model(text), np.random.default_rng(0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(random.normal(size=(64, 128)).astype(np.float32), "w"))
    feed = {"x": random.normal(size=(4, 64)).astype(np.float32), "score": (np.arange(4) < count).astype(np.float32)}
    expected = run_onnx(model.SerializeToString(), feed)["y"]
    ((_, got),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_a_product_of_no_rows() -> None:
    """XNNPACK refuses a BATCH_MATMUL of no rows at run time; FULLY_CONNECTED computes it."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[n, m, k] x) => (float[n, m, k] y)
        <float[1, 1] w = {-0.5}> { p = MatMul (x, w)  z = Max (x, p)  y = Tanh (z) }"""
    )
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    for shape in ((0, 0, 1), (2, 0, 1), (2, 3, 1)):
        x = np.ones(shape, np.float32)
        ((_, got),) = run_tflite(conversion.data, {"x": x})
        np.testing.assert_allclose(got, np.tanh(x), rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_part_of_the_rows_that_are_found(count: int) -> None:
    """Their number does not show that a row that is added makes it positive: (n - 2) // 3 + 1."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[6, 2, 8, 8] x, bool[6] is_found)
        => (float[a, 2, 8, 8] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] three = {3}, int64[1] end = {99}> {
        some = Compress <axis = 0> (x, is_found)  part = Slice (some, one, end, zero, three)  y = Conv (part, w) }"""
    model, random = onnx.parser.parse_model(text), np.random.default_rng(0)
    kernel = random.normal(size=(2, 2, 1, 1)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    feed = {"x": random.normal(size=(6, 2, 8, 8)).astype(np.float32), "is_found": np.arange(6) < count}
    expected = run_onnx(model.SerializeToString(), feed)["y"]
    ((_, got),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_rows_that_another_operand_has_too() -> None:
    """The lengths have as many elements as there are rows, whose number the graph does not show: none is added."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (int32[4, 6] x, int64[2] s) => (int32[a, b] y)
        <int64[3] lengths = {1, 2, 3}> {
        rows = Reshape (x, s)  y = ReverseSequence <batch_axis = 0, time_axis = 1> (rows, lengths) }"""
    model = onnx.parser.parse_model(text)
    feed = {"x": np.arange(24, dtype=np.int32).reshape(4, 6), "s": np.array([3, -1])}
    expected = run_onnx(model.SerializeToString(), feed)["y"]
    ((_, got),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed)
    np.testing.assert_array_equal(got, expected)
