"""The ops of the family reshape: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

import onnxtfl
from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import parse_dim
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import tensor
from tests.harness.rounds import floats, there_and_back
from tests.unit.lifting import Array, inferred, lifted_tfl
from tests.unit.permuting import check_permuted


def test_reshape_finds_what_is_left() -> None:
    x = tensor("float32", "n", 16, 7, 7)
    assert inferred(ops.Reshape, x, [-1, 784]) == "tensor<[n]x784xfloat32>"
    assert inferred(ops.Reshape, x, [4, -1]) == "tensor<4x[196*n]xfloat32>"
    assert inferred(ops.Reshape, tensor("float32", "n", 6), [-1, 4]) == "tensor<[(6*n)//4]x4xfloat32>"


@pytest.mark.parametrize(
    ("shape", "target"), [((2, 3), [4, 2]), ((2, 3), [-1, 4]), ((2, 3), [-1, -1]), ((6,), [-2, 3])]
)
def test_reshape_refuses_misfits(shape: tuple[int, ...], target: list[int]) -> None:
    with pytest.raises(InvalidModelError):
        inferred(ops.Reshape, tensor("float32", *shape), target)


def test_unknown_entries_stay_open_beside_known_ones() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("float32", "n", 8))
    given = graph.add_input(tensor("int64", 1))
    y = b(ops.Reshape, x, b(ops.Concatenate, b(ops.Slice, b(ops.Shape, x), [0], [1], [1]), given, axis=0))
    assert y.shape[0] == parse_dim("n")
    assert str(y.shape[1]).startswith("u?")


SHAPES = [
    ((2, 12, 5, 5), (2, 3, 4, 5, 5)),
    ((2, 12, 1, 1), (2, 12)),
    ((2, 12), (2, 12, 1, 1)),
    ((2, 12, 5, 5), (2, 12, 25)),
    ((1, 12, 5, 5), (1, 3, 4, 5, 5)),
    ((1, 1, 5), (5,)),
    ((4, 5), (1, 4, 5, 1)),
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (4, 6)),
    ((6, 1, 4), (2, 1, 3, 4)),
]


@pytest.mark.parametrize(("before", "after"), SHAPES)
def test_reshape_follows_permutations(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = np.arange(np.prod(before)).reshape(before)
    found = 0
    for permutation in itertools.permutations(range(len(before))):
        found += check_permuted(ops.Reshape, [x, np.asarray(after)], {}, 0, permutation)
    for permutation in itertools.permutations(range(len(after))):
        found += check_permuted(ops.Reshape, [x, np.asarray(after)], {}, -1, permutation)
    assert found >= 2


def test_reshape_with_an_open_size_follows() -> None:
    x = np.arange(120).reshape(2, 3, 4, 5)
    assert check_permuted(ops.Reshape, [x, np.asarray([-1, 3, 20])], {}, 0, (0, 2, 3, 1))


def test_sizes_stay_symbolic() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", "n", 1, "2*w"))
    b = Builder(graph)
    assert str(b(ops.Squeeze, x, [1]).type) == "tensor<[n]x[2*w]xfloat32>"
    assert str(b(ops.Unsqueeze, x, [0]).type) == "tensor<1x[n]x1x[2*w]xfloat32>"
    with pytest.raises(InvalidModelError):
        b(ops.Squeeze, graph.add_input(tensor("float32", 2)), [0])


def test_a_loop_that_ends_early_for_sizes_known_at_run_time() -> None:
    """Before the first round there are no elements, whose sizes are 0: in ONNX too, where a 0 may mean another size."""
    model = """
main (float[T,N,2] x) => (float[K,N,2] y, float[N,2] last) <bool yes = {1}, float most = {2.5}, int64[1] zero = {0}> {
  sizes = Shape(x)
  count = Gather(sizes, zero)
  trips = Squeeze(count, zero)
  s = ReduceMean <axes = [0], keepdims = 0> (x)
  last, y = Loop (trips, yes, s) <
    body = step (int64 i, bool go, float[N,2] h) => (bool on, float[N,2] new, float[N,2] out) {
    part = Gather(x, i)
    size = Abs(part)
    new = Add(h, size)
    top = ReduceMax <keepdims = 0> (new)
    on = Less(top, most)
    out = Neg(new)
  }>
}
"""
    there, _ = there_and_back(model, *({"x": floats(t, n, 2)} for t, n in ((5, 3), (1, 1), (9, 2))))
    assert there["WHILE"] == 1


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 2, 3)), (2, (2, 3, 1)), (-1, (2, 3, 1)), (-2, (2, 1, 3))])
@pytest.mark.parametrize("known", [True, False])
def test_expand_dims_of_onnx_runtime(axis: int, shape: tuple[int, ...], known: bool) -> None:
    """The axis counts as that of Unsqueeze; the check compares with ONNX Runtime's kernel."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> '
        f"g (float[2,3] x, int32 axis) => (float[{','.join(map(str, shape))}] y) "
        f"{{ y = com.microsoft.ExpandDims (x, axis) }}"
    )
    if known:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(axis, np.int32), "axis"))
        del model.graph.input[1]
    converted = onnxtfl.onnx_to_tflite(model, check=known and "require")
    assert [spec.shape for spec in converted.report.outputs] == [shape] if known else converted.data


@pytest.mark.parametrize(("shape", "option"), [(np.zeros(0, np.int64), (6,)), (np.asarray([9]), (6,)), (None, (6,))])
def test_sizes_of_another_type_than_int32_do_not_count(shape: Array | None, option: tuple[int, ...]) -> None:
    """TFLite's kernel reads the options then."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    given = [] if shape is None else [shape]
    np.testing.assert_array_equal(lifted_tfl("RESHAPE", x, *given, constants=len(given), new_shape=option), x.ravel())
