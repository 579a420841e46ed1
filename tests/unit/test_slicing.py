"""The ops of the family slicing: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_from_string, parser

import onnxtfl
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import parse_dim, symbol
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import Model
from onnxtfl.ir.types import tensor
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import floats, inferred
from tests.unit.onnx_nodes import agrees_on
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph, assert_same_as_litert
from tests.unit.tflite_ops import run_both
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize(
    ("size", "bounds", "expected"),
    [
        ("n", (0, 1 << 62, 1), "n"),
        ("n", (0, 1 << 62, 2), "-((-n)//2)"),
        ("n", (1, -1, 1), "n - 2"),
        ("n", (-1, 1 << 62, 1), "1"),
        ("n + 5", (-3, 1 << 62, 1), "3"),
        ("n + 5", (0, 4, 1), "4"),
        ("n", (-1, -(1 << 62), -1), "n"),
        (10, (7, 2, -2), "3"),
        (10, (3, 3, 1), "0"),
    ],
)
def test_slice_infers(size: Any, bounds: tuple[int, int, int], expected: str) -> None:
    found = inferred(ops.Slice, tensor("float32", size), *([v] for v in bounds))
    assert found == f"tensor<{expected if expected.isdigit() else f'[{parse_dim(expected)}]'}xfloat32>"


def test_slice_does_not_guess() -> None:
    """Where clamping depends on a size known only at run time, the size is a new symbol."""
    for bounds in ((-5, 1 << 62, 1), (0, 5, 1), (-1, -100, -1)):
        assert "u?" in inferred(ops.Slice, tensor("float32", "n"), *([v] for v in bounds))


def test_sizes_stay_symbolic() -> None:
    x = tensor("float32", "n", 1, "2*w")
    assert inferred(ops.SliceInDim, x, dimension=0, start_index=1) == "tensor<[n - 1]x1x[2*w]xfloat32>"


@pytest.mark.parametrize("inputs", [1, 3])
@pytest.mark.parametrize("end", [(1 << 31) - 1, 100, -(1 << 31), -100, 1])
def test_strided_slice_backward(end: int, inputs: int) -> None:
    """The greatest int32 as an end means nothing in TFLite, and "through the end" in ONNX Runtime."""
    masks = dict.fromkeys((f"{name}_mask" for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")), 0)
    vectors = [np.asarray([n], np.int32) for n in (4, end, -1)]
    run_both(("STRIDED_SLICE", [np.arange(6, dtype=np.float32), *vectors], inputs, {**masks, "offset": False}))


def test_an_ellipsis_of_a_scalar() -> None:
    masks = dict.fromkeys((f"{name}_mask" for name in ("begin", "end", "new_axis", "shrink_axis")), 0)
    vectors = [np.asarray([n], np.int32) for n in (1, (1 << 31) - 1, 1)]
    run_both(("STRIDED_SLICE", [np.asarray(5, np.int32), *vectors], 1, {**masks, "ellipsis_mask": 1, "offset": False}))


@pytest.mark.parametrize("rank", [3, 6])
def test_a_slice_backward_past_the_begin_of_an_open_axis(rank: int) -> None:
    """Its limit, so many elements before the end, is clamped at run time: x[-1:-100:-1] is all of x."""
    names = ", ".join("abcdef"[:rank])
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[{names}] x) => (float[k, {names[3:]}] y)'
        "<int64[1] s = {-1}, int64[1] e = {-100}, int64[1] i = {0}> { y = Slice (x, s, e, i, s) }"
    )
    x = floats(*[2, 3, 1, 2, 2, 1][:rank])
    made = onnxtfl.onnx_to_tflite(model, check=False)
    assert made.data is not None
    np.testing.assert_array_equal(run_tflite(made.data, [x])[0][1], x[::-1])


@pytest.mark.parametrize("shape", [(3, 4), ("n", 4), ("n", "m")])
@pytest.mark.parametrize("step", [-1, -2])
def test_a_backward_slice_from_before_the_axis_has_its_first_element(shape: tuple[int | str, ...], step: int) -> None:
    """ONNX clamps the start to the begin of the axis; NumPy takes nothing."""
    node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
    vectors = {"starts": [-7, 1], "ends": [-100, 4], "axes": [0, 1], "steps": [step, 1]}
    constants = {name: np.asarray(vector) for name, vector in vectors.items()}
    model = onnx_model([node], [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, None)], constants)
    data, feed = model.SerializeToString(), {"x": np.arange(12, dtype=np.float32).reshape(3, 4)}
    found = run_tflite(onnxtfl.onnx_to_tflite(data, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, [[1, 2, 3]])
    np.testing.assert_array_equal(found, run_onnx(data, feed)["y"])


ROWS = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 2] x) => (float y) '


@pytest.mark.parametrize("n", [0, 4, 7, 9])
@pytest.mark.parametrize("stop", [1, 2])
def test_a_slice_that_few_elements_leave_empty(n: int, stop: int) -> None:
    """x[3:-4] has n - 7 elements, none of 4."""
    vectors = {"b": [3, 1], "e": [-4, stop], "a": [0, 1]}
    constants = " ".join(f"{name} = Constant <value_ints = {value}> ()" for name, value in vectors.items())
    model = parser.parse_model(f"{ROWS} {{ {constants} p = Slice (x, b, e, a) y = Sin (p) }}")
    feed = {"x": np.ones((n, 2), np.float32)}
    made = onnxtfl.onnx_to_tflite(model, check=False).data or b""
    wanted = run_onnx(model.SerializeToString(), feed)["y"]
    assert run_tflite(made, feed)[0][1].shape == wanted.shape


def test_a_slice_between_two_bounds_of_one_sign_has_a_known_size() -> None:
    """x[1:1] is empty whatever the size: kernels that refuse an empty axis are not run."""
    vectors = "b = Constant <value_ints = [1]> () a = Constant <value_ints = [0]> ()"
    model = parser.parse_model(f"{ROWS} {{ {vectors} p = Slice (x, b, b, a) y = Hardmax <axis = 0> (p) }}")
    made = onnxtfl.onnx_to_tflite(model, check=False)
    assert "ARG_MAX" not in made.report.ops_after
    assert run_tflite(made.data or b"", {"x": np.ones((3, 2), np.float32)})[0][1].shape == (0, 2)


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("starts", [[-3, 1], [0, 1], [-1, 2**63 - 1], [2, -1]])
def test_a_slice_that_ends_at_0_has_nothing(starts: list[int]) -> None:
    """XNNPACK takes an end of 0 for the end of the axis."""
    constants = {"s": starts, "e": [0, 2], "a": [0, 1], "t": [1, 1]}
    node = helper.make_node("Slice", ["x", *constants], ["y"])
    arrays = {name: np.asarray(value, np.int64) for name, value in constants.items()}
    model = onnx_model([node], [("x", FLOAT, ["N", "M", 3])], [("y", FLOAT, None)], arrays)
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    assert agrees_on(result, model, np.ones((4, 3, 3), np.float32))


def _strided_slice(masks: dict[str, int], *vectors: list[int]) -> Callable[[TfliteGraph], Any]:
    return lambda g: g.op("STRIDED_SLICE", [g.given(SAMPLE), *(g.constant(v, "int32") for v in vectors)], **masks)


def test_an_ellipsis_of_a_strided_slice_is_an_axis() -> None:
    assert_same_as_litert(
        _strided_slice({"ellipsis_mask": 1, "shrink_axis_mask": 2}, [0, 1, 0, 2], [0, 2, 2, 4], [1, 1, 1, 1])
    )


def test_entries_beyond_the_axes_are_ignored() -> None:
    assert_same_as_litert(_strided_slice({}, [0, 1, 0, 2], [2, 3, 2, 3], [1, 1, 1, 1]))


def test_an_axis_that_shrinks_at_a_masked_begin_is_at_its_first_place() -> None:
    assert_same_as_litert(_strided_slice({"begin_mask": 1, "shrink_axis_mask": 1}, [1, 0, 0], [2, 2, 2], [3, 1, 1]))


def test_a_slice_backward_from_the_first_element_of_an_open_axis_that_may_be_empty() -> None:
    bounds = [[2**31 - 1, 0], [0, 0], [1, -2]]
    assert_same_as_litert(
        lambda g: g.op(
            "STRIDED_SLICE",
            [g.given(np.ones((2, 2)), open_axes=[0, 1]), *(g.constant(v, "int32") for v in bounds)],
            **dict.fromkeys(("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0),
            end_mask=2,
            offset=False,
        ),
        [(2, 0)],
        [(3, 5)],
    )


def test_a_masked_end_of_a_counted_slice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT sizes the result by the count and fills it to the end of the axis: with whatever is in memory there."""
    monkeypatch.setattr(TfliteGraph, "results", lambda self, made, kinds: {made.results[0]: np.zeros((2, 2, 2))})
    with pytest.raises(onnxtfl.errors.UnsupportedError, match="end_mask 1 with offset"):
        assert_same_as_litert(_strided_slice({"end_mask": 1, "offset": True}, [1, 0, 0], [2, 2, 2], [1, 1, 1]))


@pytest.mark.parametrize("bounds", [[[0, 1, 2], [2, 2, 2], [1, 2, 1]], [[1, 0, 0], [1, 0, 1], [1, 1, 1]]])
def test_a_masked_end_of_a_counted_slice_that_it_fits(bounds: list[list[int]]) -> None:
    """The count is that of the rest of the axis, or nothing is copied."""
    assert_same_as_litert(_strided_slice({"end_mask": 5, "offset": True}, *bounds))


def test_an_open_axis_is_reversed_by_constants() -> None:
    """Position -1 is before an axis only if that is empty: then the limit needs not depend on the size."""
    masks = dict.fromkeys((f"{name}_mask" for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")), 0)
    graph = Graph()
    x = graph.add_input(tensor("float32", symbol("n"), 2), "x")
    bounds = [np.asarray([n], np.int32) for n in (-1, -(1 << 31), -1)]
    graph.outputs = Builder(graph).foreign("tfl", "STRIDED_SLICE", [x, *bounds], [x.type], **masks, offset=False)
    file = io.BytesIO()
    write(Model(graph), file)
    data = onnxtfl.tflite_to_onnx(file.getvalue(), check=False).data
    assert [node.op_type for node in load_from_string(data).graph.node] == ["Slice"]
    for rows in (0, 1, 3):
        array = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        (found,) = run_onnx(data, {"x": array}).values()
        np.testing.assert_array_equal(found, array[::-1])
