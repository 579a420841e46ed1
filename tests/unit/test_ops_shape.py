"""The ops of ir/ops/shape.py and slicing.py: what they infer, what they mean, how they follow layouts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import parse_dim
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import DType, dtype_of, tensor
from tests.unit.relabeling import check_relabel


def infer(op: type[Op], *operands: Any, **attributes: Any) -> str:
    b = Builder(Graph())
    values = [b.graph.add_input(v) if not isinstance(v, (Value, list, np.ndarray, type(None))) else v for v in operands]
    return str(b.many(op, *values, **attributes)[0].type)


def test_reshape_finds_what_is_left() -> None:
    x = tensor("float32", "n", 16, 7, 7)
    assert infer(ops.Reshape, x, [-1, 784]) == "tensor<[n]x784xfloat32>"
    assert infer(ops.Reshape, x, [4, -1]) == "tensor<4x[196*n]xfloat32>"
    assert infer(ops.Reshape, tensor("float32", "n", 6), [-1, 4]) == "tensor<[(6*n)//4]x4xfloat32>"


@pytest.mark.parametrize(
    ("shape", "target"), [((2, 3), [4, 2]), ((2, 3), [-1, 4]), ((2, 3), [-1, -1]), ((6,), [-2, 3])]
)
def test_reshape_refuses_misfits(shape: tuple[int, ...], target: list[int]) -> None:
    with pytest.raises(InvalidModelError):
        infer(ops.Reshape, tensor("float32", *shape), target)


def test_shape_arithmetic_is_followed() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("float32", "n", 8, "2*w"))
    sizes = b(ops.Shape, x)
    assert b(ops.Gather, sizes, np.asarray(1), axis=0).numpy() == 8
    batch = b(ops.Slice, sizes, [0], [1], [1])
    y = b(ops.Reshape, x, b(ops.Concatenate, batch, [-1], axis=0))
    assert y.shape == (parse_dim("n"), parse_dim("16*w"))


def test_unknown_entries_stay_open_beside_known_ones() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("float32", "n", 8))
    given = graph.add_input(tensor("int64", 1))
    y = b(ops.Reshape, x, b(ops.Concatenate, b(ops.Slice, b(ops.Shape, x), [0], [1], [1]), given, axis=0))
    assert y.shape[0] == parse_dim("n")
    assert str(y.shape[1]).startswith("u?")


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
    found = infer(ops.Slice, tensor("float32", size), *([v] for v in bounds))
    assert found == f"tensor<{expected if expected.isdigit() else f'[{parse_dim(expected)}]'}xfloat32>"


def test_slice_does_not_guess() -> None:
    """Where clamping depends on a size known only at run time, the size is a new symbol."""
    for bounds in ((-5, 1 << 62, 1), (0, 5, 1)):
        assert "u?" in infer(ops.Slice, tensor("float32", "n"), *([v] for v in bounds))


def test_split_and_its_misfits() -> None:
    assert infer(ops.Split, tensor("int8", "n", 6), [1, 5], axis=1) == "tensor<[n]x1xint8>"
    assert infer(ops.Split, tensor("int8", "2*n"), None, axis=0, count=2) == "tensor<[n]xint8>"
    with pytest.raises(InvalidModelError):
        infer(ops.Split, tensor("int8", 6), [1, 4], axis=0)
    with pytest.raises(InvalidModelError):
        infer(ops.Split, tensor("int8", 7), None, axis=0, count=2)


def test_concatenate_agrees_on_sizes() -> None:
    a, c = tensor("float32", "n", 3), tensor("float32", 4, 5)
    assert infer(ops.Concatenate, a, c, axis=1) == "tensor<4x8xfloat32>"
    with pytest.raises(InvalidModelError):
        infer(ops.Concatenate, a, c, axis=0)


def test_unknown_ranks() -> None:
    x = tensor("float32").with_shape(None)
    for op, rest, attributes in (
        (ops.Reshape, ([2, -1],), {}),
        (ops.Transpose, (), {"permutation": (1, 0)}),
        (ops.Slice, ([0], [1], [1]), {}),
        (ops.Pad, (np.zeros((2, 2), np.int64),), {}),
        (ops.Tile, ([1, 2],), {}),
    ):
        infer(op, x, *rest, **attributes)  # no error is the point


def test_range_counts() -> None:
    b = Builder(Graph())
    n = Value(tensor("int64"))
    n.known = np.asarray(parse_dim("n"), object)
    zero, two = constant(0), constant(2)
    assert b(ops.Range, zero, n, two).shape == (parse_dim("-((-n)//2)"),)
    floats = [constant(v, DType.FLOAT32) for v in (1.0, 5.0, 0.5)]
    assert b(ops.Range, *floats).shape == (8,)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pad_crops_first(mode: str) -> None:
    x = np.arange(12).reshape(3, 4)
    padded = ops.Pad.evaluate({"mode": mode}, x, np.asarray([[0, 0], [-1, 2]]), None)
    keyword = {} if mode != "constant" else {"constant_values": 0}
    assert (padded == np.pad(x[:, 1:], [(0, 0), (0, 2)], mode, **keyword)).all()  # type: ignore[call-overload]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_go_there_and_back(mode: str) -> None:
    x = np.random.default_rng(0).integers(0, 99, (2, 3, 5, 12))
    attributes = {"block_size": 2, "mode": mode, "depth_dim": 3, "space_dims": (1, 2)}
    y = ops.DepthToSpace.evaluate(attributes, x)
    assert y.shape == (2, 6, 10, 3)
    assert (ops.SpaceToDepth.evaluate(attributes, y) == x).all()


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
        found += check_relabel(ops.Reshape, [x, np.asarray(after)], {}, 0, permutation)
    for permutation in itertools.permutations(range(len(after))):
        found += check_relabel(ops.Reshape, [x, np.asarray(after)], {}, -1, permutation)
    assert found >= 2


def test_reshape_with_an_open_size_follows() -> None:
    x = np.arange(120).reshape(2, 3, 4, 5)
    assert check_relabel(ops.Reshape, [x, np.asarray([-1, 3, 20])], {}, 0, (0, 2, 3, 1))


X = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
CASES: list[tuple[type[Op], list[Any], Mapping[str, Any]]] = [
    (ops.Transpose, [X], {"permutation": (2, 0, 3, 1)}),
    (ops.BroadcastTo, [X[:1, :, :1], np.asarray([5, 3, 2, 6])], {}),
    (ops.Concatenate, [X, X[:, :2]], {"axis": 1}),
    (ops.Split, [X, np.asarray([1, 5])], {"axis": 3}),
    (ops.Slice, [X, np.asarray([1, -1, 0, 0]), np.asarray([9, -9, 3, 6]), np.asarray([1, -1, 2, 1])], {}),
    (ops.Pad, [X, np.asarray([[0, 1], [2, 0], [-1, 0], [0, 0]]), np.float32(7)], {}),
    (ops.Pad, [X, np.asarray([[0, 1], [2, 0], [1, 0], [0, 0]])], {"mode": "reflect"}),
    (ops.Tile, [X, np.asarray([1, 2, 1, 3])], {}),
    (ops.Reverse, [X], {"dimensions": (1, 3)}),
    (ops.ReverseSequence, [X, np.asarray([1, 3])], {"seq_axis": 2, "batch_axis": 0}),
    (ops.DepthToSpace, [X.reshape(1, 8, 3, 6)], {"block_size": 2, "mode": "CRD"}),
    (ops.SpaceToDepth, [X], {"block_size": 2, "depth_dim": 1, "space_dims": (2, 3)}),
    (ops.DynamicUpdateSlice, [X, X[:1, :2, :, :3] * 9, np.asarray([1, 0, 0, 2])], {}),
    (ops.Shape, [X], {}),
    (ops.Gather, [X, np.asarray([2, 0])], {"axis": 1}),
    (ops.Gather, [X, np.asarray(1)], {"axis": 2}),
    (ops.Gather, [X, np.asarray([[0, 1, 1], [1, 0, 0]])], {"axis": 2}),
    (ops.GatherElements, [X, (X % 4).astype(np.int64)], {"axis": 2}),
    (ops.ScatterElements, [X, (X % 3).astype(np.int64), X * 2], {"axis": 1, "kind": "add"}),
    (ops.TopK, [X % 7, np.asarray([2])], {"axis": 2}),
    (ops.OneHot, [(X % 4).astype(np.int64), np.asarray(4), np.float32(1), np.float32(0)], {"axis": 2}),
    (ops.Sort, [X % 7, X], {"dimension": 2}),
]


@pytest.mark.parametrize(("op", "operands", "attributes"), CASES, ids=lambda c: getattr(c, "name", ""))
def test_ops_follow_layouts(op: type[Op], operands: list[Any], attributes: Mapping[str, Any]) -> None:
    rank = operands[0].ndim
    found = sum(check_relabel(op, operands, attributes, 0, p) for p in itertools.permutations(range(rank)))
    assert found == 24
    if op is not ops.Shape:
        rank = evaluate(op, operands, attributes)[0].ndim
        for permutation in ((0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))):
            check_relabel(op, operands, attributes, -1, permutation)


def test_blocks_prefer_the_depth_where_kernels_want_it() -> None:
    graph = Graph()
    node = Node(ops.DepthToSpace, [graph.add_input(tensor("float32", 1, 8, 3, 3))], {"block_size": 2})
    node.add_result(tensor("float32", 1, 2, 6, 6))
    preferred = ops.DepthToSpace.prefers(node, channels_last=True)
    assert preferred is not None
    assert preferred.operands == ((0, 2, 3, 1),)
    assert preferred.attributes["depth_dim"] == 3


def evaluate(op: type[Op], operands: list[Array], attributes: Mapping[str, Any]) -> list[Array]:
    values = [constant(np.asarray(v), dtype_of(np.asarray(v).dtype)) for v in operands]
    return evaluate_node(Node(op, values, attributes), [np.asarray(v) for v in operands])
