"""Sizes for open dimensions: those that people use, at which no tensor inside is empty and all shapes fit."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from onnxtfl import UsageError, check, onnx_to_tflite
from onnxtfl.checking.models.facts import analyze
from onnxtfl.formats import files
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.inputs.sizes import Shapes, open_shapes
from onnxtfl.pipeline import lifted_where_possible
from tests.unit.tiny_models import onnx_model

FLOAT = TensorProto.FLOAT


def info(dtype: str, shape, name: str = "x") -> TensorInfo:
    return TensorInfo(name, dtype, shape)


def shapes_of(nodes, shape, constants=None, fixed=None) -> list[Shapes]:
    """The shapes for the input "x" of a model of ``nodes``, whose last result is its output."""
    made = [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes]
    model = onnx_model(made, [("x", FLOAT, shape)], [(made[-1].output[0], FLOAT, None)], constants)
    facts = analyze(lifted_where_possible(files.read(model)))
    return list(islice(open_shapes([info("float32", shape)], fixed or {}, facts.shapes), 20))


def test_sizes_that_people_use() -> None:
    specs = [info("int64", ("batch", "seq"), "ids"), info("float32", ("batch", 3, "h", None), "image")]
    shapes = list(open_shapes(specs, {}))
    assert shapes[:3] == [[(b, n), (b, 3, s, s)] for b, n, s in ((2, 32, 64), (1, 32, 64), (2, 128, 160))]
    assert next(iter(open_shapes([info("float32", ("batch", "samples"))], {}))) == [(2, 480)]
    assert next(iter(open_shapes([info("float32", (None, None, None, 3))], {}))) == [(2, 64, 64, 3)]


def test_nothing_is_open() -> None:
    for shape in ((1, 3), ()):
        assert list(open_shapes([info("float32", shape)], {})) == [[shape]]


def test_given_shapes_settle_symbols() -> None:
    specs = [info("int64", ("batch", "seq"), "ids"), info("float32", ("batch", 3, "h", None), "image")]
    assert next(iter(open_shapes(specs, {"image": (7, 3, 9, 9)}))) == [(7, 32), (7, 3, 9, 9)]


def test_no_tensor_inside_is_empty() -> None:
    """Pooling 100 rows at once leaves nothing of an image of 64 rows: such sizes come last."""
    pool = ("AveragePool", ["x"], ["y"], {"kernel_shape": [100, 1], "strides": [1, 1]})
    heights = [shapes[0][2] for shapes in shapes_of([pool], (1, 3, "h", 64))]
    assert heights[0] == 160
    assert set(heights[-4:]) == {32, 48, 64, 96}


def test_rows_of_a_table_of_positions() -> None:
    """224 x 224 in patches of 16 is the only image with 196 patches; it is added to a table of as many rows."""
    patches = [
        ("Conv", ["x", "w"], ["a"], {"strides": [16, 16]}),
        ("Flatten", ["a"], ["b"], {"axis": 2}),
        ("Add", ["b", "table"], ["y"]),
    ]
    constants = {"w": np.zeros((4, 3, 16, 16), np.float32), "table": np.zeros((1, 196), np.float32)}
    assert shapes_of(patches, ("b", 3, "h", "w"), constants)[0] == [(2, 3, 224, 224)]


def test_a_size_that_only_the_graph_says() -> None:
    """A classifier of 6 * 6 features reads what a convolution without padding makes of 13 x 13."""
    nodes = [
        ("Conv", ["x", "k"], ["a"], {"strides": [2, 2]}),
        ("Flatten", ["a"], ["b"]),
        ("MatMul", ["b", "w"], ["y"]),
    ]
    constants = {"k": np.zeros((1, 3, 3, 3), np.float32), "w": np.zeros((36, 2), np.float32)}
    assert shapes_of(nodes, ("b", 3, "h", "w"), constants)[0][0][2:] in {(13, 13), (14, 14)}


def test_halves_that_are_joined_again() -> None:
    """What was halved twice and doubled twice is joined with the whole: multiples of four."""
    nodes = [
        ("MaxPool", ["x"], ["a"], {"kernel_shape": [4], "strides": [4]}),
        ("Resize", ["a", "", "scales"], ["c"], {"mode": "nearest"}),
        ("Concat", ["x", "c"], ["y"], {"axis": 1}),
    ]
    found = shapes_of(nodes, (1, 3, "t"), {"scales": np.array([1, 1, 4], np.float32)})
    assert found[0][0][2] % 4 == 0


def test_states_have_the_batch_of_the_input() -> None:
    specs = [info("float32", (None, None), "sound"), info("float32", (2, None, 128), "state")]
    assert next(iter(open_shapes(specs, {}))) == [(2, 480), (2, 2, 128)]


DECODER = """<ir_version: 8, opset_import: ["" : 17]> g
  (float[b, seq, 4] x, float[b, past, 4] cache, float[b, total] mask) => (float[b, m, 4] y)
  <int64[1] axis = {2}> {
    all = Concat <axis = 1> (cache, x)
    shape = Shape (all)
    flat = Reshape (mask, two)
    m = Unsqueeze (flat, axis)
    y = Mul (all, m)
  }"""


def test_the_length_of_a_mask_is_the_sum_of_two_others() -> None:
    """A decoder with a cache: no shape says that total = past + seq, but a run does."""
    source = parser.parse_model(DECODER.replace("shape = Shape (all)", "two = Shape <start = 0, end = 2> (all)"))
    report = check(source, onnx_to_tflite(source, check=False).data)
    assert report.ok, report
    sizes = {spec.name: spec.shape for spec in report.inputs}
    assert sizes["mask"][1] == sizes["x"][1] + sizes["cache"][1]


@pytest.mark.parametrize("given", [{"total": 3}, {"b": 0}])
def test_sizes_that_the_user_gives_stay(given: dict[str, int]) -> None:
    """Also where no run accepts them: others would be another answer."""
    source = parser.parse_model(DECODER.replace("shape = Shape (all)", "two = Shape <start = 0, end = 2> (all)"))
    report = check(source, source, dims=given)
    assert report.status == "not checked", report
    assert ("asked for: total=3" if "total" in given else "was empty") in report.reason


def test_sizes_that_no_run_accepts_are_told() -> None:
    text = DECODER.replace("shape = Shape (all)", "two = Constant <value_ints = [7, 11]> ()")
    report = check(parser.parse_model(text), parser.parse_model(text))
    assert report.status == "not checked"
    assert "tried" in report.reason and "--dim" in report.reason and "mask:[" in report.reason


def test_dimensions_get_sizes_by_name() -> None:
    text = "g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y) { y = Add (x, z) }"
    source = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    report = check(source, source, dims={"n": 5})
    assert [spec.shape for spec in report.inputs] == [(5, 3), (5, 3)]
    with pytest.raises(UsageError, match="no input has a dimension 'm'"):
        check(source, source, dims={"m": 5})


def test_lengths_count_all_steps() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, T, 3] x, int64[2] lengths) => (float[2, T, 3] y)
      <int64 zero = {0}, int64 one = {1}, int64[1] last = {1}> {
        most = ReduceMax <keepdims = 0> (lengths)
        steps = Range (zero, most, one)
        whole = Cast <to = 1> (steps)
        row = Unsqueeze (whole, last)
        y = Add (x, row)
      }"""
    source = parser.parse_model(text)
    report = check(source, source)
    assert report.ok, report


def test_leading_axes_without_a_name_are_one_batch() -> None:
    """The inputs of a .tflite whose common size has no name in the file."""
    specs = [info("int32", (None,), "user"), info("int32", (None,), "item"), info("float32", (None, 8), "features")]
    assert next(iter(open_shapes(specs, {}))) == [(2,), (2,), (2, 8)]
    assert next(iter(open_shapes(specs[:1], {}))) == [(32,)]
