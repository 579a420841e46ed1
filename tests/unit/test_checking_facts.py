"""What the graph says about its inputs, and the inputs made from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import onnxtfl
from onnxtfl.checking.models.facts import Facts, Selection, analyze
from onnxtfl.formats import files
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.generation import UnknownInputError, make_input
from onnxtfl.inputs.ranges import Range, input_ranges
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.text import parse_graph
from onnxtfl.pipeline import lifted_where_possible
from tests.harness.rounds import parsed
from tests.models.corpus import CORPUS
from tests.unit.tiny_models import onnx_model

TABLE = np.zeros((50, 4), np.float32)
INT64, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL


def facts_of(model: ModelProto | bytes | Path) -> Facts:
    return analyze(lifted_where_possible(files.read(model)))


def range_of(*nodes, type_: int = INT64, shape=(2, 3), constants=None, **more):
    """What is known of the input "x" of a model of ``nodes``."""
    made = [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes]
    outputs = [(made[-1].output[0], FLOAT, None)]
    model = onnx_model(made, [("x", type_, shape)], outputs, {"table": TABLE, **(constants or {})}, **more)
    return facts_of(model).ranges.get("x")


def test_rows_of_a_table() -> None:
    assert range_of(("Gather", ["table", "x"], ["y"])) == Range("index", 0, 50)
    assert range_of(("Gather", ["table", "x"], ["y"], {"axis": 1})) == Range("index", 0, 4)
    assert range_of(("Gather", ["table", "x"], ["y"], {"axis": -1})) == Range("index", 0, 4)


def test_rows_through_operators_that_carry_the_value() -> None:
    shape = {"shape": np.array([6], np.int64)}
    nodes = [
        ("Cast", ["x"], ["a"], {"to": INT64}),
        ("Reshape", ["a", "shape"], ["b"]),
        ("Transpose", ["b"], ["c"], {"perm": [0]}),
        ("Gather", ["table", "c"], ["y"]),
    ]
    assert range_of(*nodes, type_=FLOAT, constants=shape) == Range("index", 0, 50)


def test_rows_through_arithmetic() -> None:
    two = {"two": np.array(2, np.int64)}
    gather = ("Gather", ["table", "a"], ["y"])
    assert range_of(("Add", ["x", "two"], ["a"]), gather, constants=two) == Range("index", 0, 48)
    assert range_of(("Sub", ["x", "two"], ["a"]), gather, constants=two) == Range("index", 2, 52)
    assert range_of(("Mul", ["two", "x"], ["a"]), gather, constants=two) == Range("index", 0, 25)
    assert range_of(("Div", ["x", "two"], ["a"]), gather, constants=two) is None


@pytest.mark.parametrize("step", [0.25, 1 / 3])
def test_rows_at_which_a_table_of_a_function_changes(step: float) -> None:
    """Kernels refuse operands outside of the function's domain, where its table is constant."""
    stored = np.arange(-(1 << 15), 1 << 15)
    table = np.where(stored < 256, 1000, stored).astype(np.float32)
    constants = {"step": np.float32(step), "zero": np.int16(0), "least": np.int32(1 << 15), "rows": table}
    nodes = [
        ("QuantizeLinear", ["x", "step", "zero"], ["q"]),
        ("Cast", ["q"], ["i"], {"to": TensorProto.INT32}),
        ("Add", ["i", "least"], ["place"]),
        ("Gather", ["rows", "place"], ["y"]),
    ]
    found = range_of(*nodes, type_=FLOAT, constants=constants, opset=21)
    assert found is not None
    assert (found.kind, found.low, found.high) == ("range", pytest.approx(256 * step), pytest.approx(32767 * step))
    constants["rows"] = stored.astype(np.float32)
    assert range_of(*nodes, type_=FLOAT, constants=constants, opset=21) is None  # any operand will do


def test_int16_rsqrt_is_checked() -> None:
    """LiteRT's kernel ends a run with an operand that is not positive."""
    model = Path(CORPUS, "tflite/litert/single_rsqrt_default_a16w8_recipe_quantized.tflite")
    if not model.exists():
        pytest.skip("the corpus is not there")
    assert onnxtfl.tflite_to_onnx(model, check="require").check.ok


def test_rows_of_what_is_brought_into_bounds() -> None:
    gather = ("Gather", ["table", "a"], ["y"])
    rows = {"rows": np.array(50, np.int64), "zero": np.array(0, np.int64)}
    assert range_of(("Mod", ["x", "rows"], ["a"]), gather, constants=rows) == Range("index", 0, 50)
    assert range_of(("Clip", ["x", "zero", "rows"], ["a"]), gather, constants=rows) == Range("index", 0, 50)


def test_rows_that_may_count_from_the_end() -> None:
    """What ``ids < 0 ? ids + rows : ids`` selects with is the ids themselves."""
    rows = {"rows": np.array(50, np.int64), "zero": np.array(0, np.int64)}
    nodes = [
        ("Add", ["x", "rows"], ["b"]),
        ("Less", ["x", "zero"], ["n"]),
        ("Where", ["n", "b", "x"], ["a"]),
        ("Gather", ["table", "a"], ["y"]),
    ]
    assert range_of(*nodes, constants=rows) == Range("index", 0, 50)


def test_points_have_a_coordinate_for_each_of_the_first_axes() -> None:
    points = ("GatherND", ["table", "x"], ["y"])
    assert range_of(points, shape=(7, 1)) == Range("index", 0, 50)
    assert range_of(points, shape=(7, 2)) == Range("index", 0, 4)


def test_rows_of_a_computed_table() -> None:
    found = range_of(("Relu", ["table"], ["t"]), ("Neg", ["t"], ["u"]), ("Gather", ["u", "x"], ["y"]))
    assert found == Range("index", 0, 50)


def test_rows_in_a_subgraph() -> None:
    body = helper.make_graph(
        [helper.make_node("Gather", ["table", "x"], ["z"])], "b", [], [helper.make_tensor_value_info("z", FLOAT, None)]
    )
    branches = {"then_branch": body, "else_branch": body}
    assert range_of(("If", ["c"], ["y"], branches), constants={"c": np.array(True)}) == Range("index", 0, 50)


def test_masks() -> None:
    one, zero = {"one": np.array(1, np.int64)}, {"zero": np.array(0, np.int64)}
    assert range_of(("Cast", ["x"], ["y"], {"to": BOOL})) == Range("mask", 0, 2)
    assert range_of(("Sub", ["one", "x"], ["y"]), constants=one) == Range("mask", 0, 2)
    assert range_of(("Sub", ["x", "one"], ["y"]), constants=one) is None
    assert range_of(("Equal", ["x", "zero"], ["y"]), constants=zero) == Range("mask", 0, 2)
    assert range_of(("Greater", ["x", "zero"], ["y"]), constants=zero) == Range("mask", 0, 2)


def test_what_is_no_mask() -> None:
    zero, numbers = {"zero": np.array(0, np.int64)}, {"zero": np.array(0, np.float32)}
    assert range_of(("Less", ["zero", "x"], ["y"]), shape=(), constants=zero) is None  # how often a loop goes round
    assert range_of(("Greater", ["x", "zero"], ["y"]), type_=FLOAT, constants=numbers) is None
    assert range_of(("ThresholdedRelu", ["x"], ["y"]), type_=FLOAT) is None


def test_a_padding_test_does_not_turn_ids_into_a_mask() -> None:
    nodes = [("Equal", ["x", "zero"], ["e"]), ("Gather", ["table", "x"], ["y"])]
    assert range_of(*nodes, constants={"zero": np.array(0, np.int64)}) == Range("index", 0, 50)


def test_a_number_that_a_scalar_is_compared_with() -> None:
    rate = {"rate": np.array(16000, np.int64)}
    assert range_of(("Equal", ["x", "rate"], ["y"]), shape=(), constants=rate) == Range("value", 16000, 16001)
    assert range_of(("Equal", ["x", "rate"], ["y"]), constants=rate) is None


def test_a_mask_whose_ones_are_counted_is_full() -> None:
    """The number less 1 is the last position of each row, as attention to a cache takes it."""
    constants = {"axes": np.array([1], np.int64), "one": np.array([1], np.int64), "zero": np.array(0, np.int64)}
    count = ("ReduceSum", ["x", "axes"], ["n"], {"keepdims": 0})
    assert range_of(count, ("Sub", ["n", "one"], ["y"]), constants=constants) == Range("value", 1, 2)
    assert range_of(count, ("Mul", ["n", "one"], ["y"]), constants=constants) is None
    nodes = [count, ("Sub", ["n", "one"], ["m"]), ("Equal", ["x", "zero"], ["y"])]
    assert range_of(*nodes, constants=constants) == Range("mask", 0, 2)


def test_domains() -> None:
    assert range_of(("Log", ["x"], ["y"]), type_=FLOAT) == Range("range", 0.1, 2)
    assert range_of(("Relu", ["x"], ["y"]), type_=FLOAT) is None
    assert range_of(("Expand", ["table", "x"], ["y"]), shape=(2,)) == Range("range", 1, 2)
    assert range_of(("ConstantOfShape", ["x"], ["y"]), shape=(2,)) == Range("range", 1, 4)
    assert range_of(("CumSum", ["table", "x"], ["y"]), shape=()) == Range("range", 0, 1)


def test_ops_without_a_conversion_hide_nothing_but_themselves() -> None:
    unknown = helper.make_node("Unknown", ["table"], ["t"], domain="nobody")
    gather = helper.make_node("Gather", ["u", "x"], ["y"])
    model = onnx_model(
        [unknown, helper.make_node("Add", ["t", "table"], ["u"]), gather],
        [("x", INT64, (2, 3))],
        [("y", FLOAT, None)],
        {"table": TABLE},
    )
    model.opset_import.append(helper.make_opsetid("nobody", 1))
    assert facts_of(model).ranges == {}  # the shape of the table is not known
    model.graph.value_info.append(helper.make_tensor_value_info("t", FLOAT, [50, 4]))
    assert facts_of(model).ranges == {"x": Range("index", 0, 50)}


def test_positions() -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"]), helper.make_node("Cast", ["i"], ["y"], to=FLOAT)]
    outputs = [("y", FLOAT, [3, 1]), ("v", FLOAT, [3, 1])]
    facts = facts_of(onnx_model(nodes, [("x", FLOAT, [3, 5])], outputs, {"k": np.array([1], np.int64)}))
    assert facts.selections == {"y": Selection("x", 1)}


def test_random_outputs_and_grids() -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
        helper.make_node("Neg", ["x"], ["z"]),
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("Flatten", ["d"], ["w"]),
    ]
    outputs = [(name, FLOAT, [2, 3]) for name in "yzw"]
    facts = facts_of(onnx_model(nodes, [("x", FLOAT, [2, 3])], outputs, {"s": np.array(0.5, np.float32)}))
    assert facts.drawn == {"y"}
    assert facts.steps == {"w": 0.5}


def test_sigmoids() -> None:
    """The error of a Sigmoid is that of its elements and means, not of functions of it."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["m"], axes=[1]),
        helper.make_node("Transpose", ["m"], ["y"]),
        helper.make_node("TopK", ["s", "k"], ["v", "i"]),
        helper.make_node("ReduceMax", ["v"], ["w"], axes=[1]),
        helper.make_node("Log", ["s"], ["z"]),
    ]
    outputs = [(name, FLOAT, None) for name in "ywz"]
    model = onnx_model(nodes, [("x", FLOAT, [2, 3])], outputs, {"k": np.array([2], np.int64)})
    assert facts_of(model).sigmoids >= {"s", "m", "y", "v", "w"}
    assert facts_of(model).sigmoids.isdisjoint({"x", "z"})


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
def test_tflite() -> None:
    folder = CORPUS / "tflite" / "misc"
    facts = facts_of(next(folder.glob("*movie_review.tflite")))
    assert list(facts.ranges.values()) == [Range("index", 0, 10003)]


def info(dtype: str, shape=(4, 8), name: str = "x", **more) -> TensorInfo:
    return TensorInfo(name, dtype, shape, **more)


def made(spec: TensorInfo, known: Range | None = None, seed: int = 0, shape=(40, 8)):
    return make_input(spec, shape, known, (seed, 0))[0]


def test_values_by_kind() -> None:
    ids = made(info("int64"), Range("index", 0, 50))
    assert (ids.dtype, ids.min() >= 0, ids.max() < 50, len(np.unique(ids)) > 20) == (np.int64, True, True, True)
    assert set(np.unique(made(info("int64"), Range("mask", 0, 2)))) == {0, 1}
    assert set(np.unique(made(info("float32", name="attention_mask")))) == {0.0, 1.0}
    assert set(np.unique(made(info("bool")))) == {False, True}
    assert not made(info("bool"), Range("range", 0, 1)).any()
    assert made(info("uint8")).max() > 200
    assert made(info("int8", quantization=Quantization("int8", (0.1,), (0,)))).min() < -100
    positive = made(info("int8", quantization=Quantization("int8", (0.1,), (-100,))), Range("range", 0, 2))
    assert (positive.min(), positive.max()) == (-100, -80)
    assert 1 <= made(info("int32")).min() <= made(info("int32")).max() < 8
    floats = made(info("float32"))
    assert abs(floats.mean()) < 0.3
    assert 0.8 < floats.std() < 1.2
    assert made(info("float16"), Range("range", 0.1, 2)).min() >= np.float16(0.1)
    assert made(info("string")).dtype == object
    assert made(info("bfloat16")).dtype.name == "bfloat16"
    assert made(info("complex64")).dtype == np.complex64
    with pytest.raises(UnknownInputError):
        made(info("sequence"))


def test_a_mask_leaves_something_in_each_row() -> None:
    mask = made(info("bool"))
    assert mask.any(axis=1).all()
    assert not mask.all(axis=1).any()


def test_the_seed_decides() -> None:
    assert (made(info("float32"), seed=1) == made(info("float32"), seed=1)).all()
    assert (made(info("float32"), seed=1) != made(info("float32"), seed=2)).any()


def test_lengths_of_sequences() -> None:
    """They are at most the number of steps, also where that is open."""
    for steps, high in ((5, 6), ("t", 3)):
        nodes = [helper.make_node("RNN", ["x", "w", "r", "", "n"], ["", "y"], hidden_size=4)]
        constants = {"w": np.zeros((1, 4, 3), np.float32), "r": np.zeros((1, 4, 4), np.float32)}
        inputs = [("x", FLOAT, [steps, 2, 3]), ("n", TensorProto.INT32, [2])]
        facts = facts_of(onnx_model(nodes, inputs, [("y", FLOAT, None)], constants))
        assert facts.ranges == {"n": Range("range", 1, high)}


def test_images_are_smooth() -> None:
    """Neighbouring pixels are alike; the values are those that images have."""
    for shape, axis in (((2, 3, 64, 48), 3), ((2, 64, 48, 3), 2)):
        values = made(info("float32"), shape=shape)
        assert np.abs(np.diff(values, axis=axis)).mean() < 0.5 * values.std() * np.sqrt(2)
        assert values.min() >= -1
        assert values.max() <= 1
        assert values.std() > 0.2
    pixels = made(info("uint8"), shape=(1, 64, 48, 3))
    assert pixels.dtype == np.uint8
    assert pixels.std() > 25


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [
        ("uint8", Range("range", 0, 256)),
        ("uint32", Range("range", 0, 256)),
        ("int8", Range("range", -128, 128)),
        ("int32", None),
    ],
)
def test_floats_that_become_bytes(dtype: str, wanted: Range | None) -> None:
    """ONNX does not define a cast of -1 to uint8: it is 255 in ONNX Runtime, and 0 in LiteRT."""
    text = f"graph g(%x: tensor<4xfloat32>) -> (%y) {{\n %y = Convert(%x) {{dtype = !{dtype}}}\n}}"
    assert input_ranges(parse_graph(text)).get("x") == wanted


def test_images_that_the_graph_divides_by_255() -> None:
    for node, constant in (("Div", 255.0), ("Sub", 127.5), ("Mul", 1 / 255)):
        shape, c = (1, 3, 64, 64), {"c": np.array(constant, np.float32)}
        known = range_of((node, ["x", "c"], ["y"]), type_=FLOAT, shape=shape, constants=c)
        assert known == Range("pixels", 0, 256)
    assert 150 < made(info("float32"), known, shape=shape).max() <= 255


def test_sound_is_quiet() -> None:
    values = made(info("float32"), shape=(1, 16000))
    assert 0.01 < values.std() < 0.2
    assert made(info("int16"), shape=(1, 16000)).std() > 300
    assert made(info("float32"), shape=(64, 8)).std() > 0.5  # features are not sound


def test_noise_instead_of_images_and_sound() -> None:
    """The second run of a model gets noise, which reaches more of it."""
    for shape in ((1, 3, 64, 64), (1, 16000)):
        values = make_input(info("float32"), shape, None, (0, 0), noisy=True)[0]
        assert 0.9 < values.std() < 1.1


def test_a_depth_that_is_a_float_is_a_whole_number() -> None:
    """ONNX's evaluator rounds another one up, runtimes round it down."""
    nodes = [helper.make_node("OneHot", ["i", "x", "v"], ["y"])]
    model = onnx_model(nodes, [("i", FLOAT, [2]), ("x", FLOAT, []), ("v", FLOAT, [2])], [("y", FLOAT, [2, None])])
    assert facts_of(model).ranges["x"] == Range("index", 4, 7)


@pytest.mark.parametrize(("type_", "rounds"), [(TensorProto.FLOAT8E4M3FN, True), (TensorProto.INT8, False)])
def test_quantization_to_float8_rounds_values(type_: int, rounds: bool) -> None:
    """No kernel computes on float8, so that the other model rounds, too; steps of integers are compared as such."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("Cast", ["q"], ["y"], to=1)]
    model = onnx_model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], {"s": np.float32(0.5)}, opset=19)
    model.graph.initializer.append(helper.make_tensor("z", type_, [], [0]))
    assert facts_of(model).rounds == rounds


def test_indices_of_what_is_written_differ() -> None:
    """Of two updates of one element, which one counts is not said."""
    for shape, known in (((4, 3), Range("index", 0, 5, 0)), ((2, 5), Range("index", 0, 5, 1))):
        found, _ = make_input(TensorInfo("x", "int64", shape), shape, known, (1,))
        assert all(len(set(line)) == len(line) for line in (found.T if known.distinct == 0 else found).tolist())
    rows, _ = make_input(TensorInfo("x", "int64", (2, 3, 2)), (2, 3, 2), Range("index", 0, 6, -2), (1,))
    assert len({tuple(row) for row in rows.reshape(-1, 2).tolist()}) == 6
    order, _ = make_input(TensorInfo("x", "int64", (4,)), (4,), Range("index", 0, 4), (1,))
    assert sorted(order) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "op", ["y = ScatterElements <axis = 1> (d, i, u)", "y = ScatterND (d, j, v)", "y = ScatterElements (d, i, u)"]
)
def test_scattering_to_places_known_at_run_time_passes_the_check(op: str) -> None:
    text = "g (float[4,4] d, int64[3,3] i, float[3,3] u, int64[4,1] j, float[4,4] v) => (float[4,4] y)"
    assert onnxtfl.onnx_to_tflite(parsed(f"{text} {{ {op} }}", 18)).report.ops_after


def test_indices_of_a_scatter_onto_zeros() -> None:
    shape, operands = "%s = constant tensor<1xint32> [100]", "%i: tensor<4x1xint32>, %u: tensor<4xfloat32>"
    graph = parse_graph(f"graph g({operands}) -> (%y) {{\n {shape}\n %y = ScatterND(_, %i, %u, %s)\n}}")
    assert input_ranges(graph)["i"] == Range("index", 0, 100, -2)
