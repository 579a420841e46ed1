"""Every op that can follow permuted axes, and the safety net of the layout pass: read as permuted, it means the same.

An op with its own `permuted` needs a case here; elementwise ops are tried as they are declared.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, constant
from onnxtfl.ir.op import OPS, Elementwise, Op, Operand
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import DType, dtype_of
from onnxtfl.rewriting.registry import all_rules
from tests.unit.permuting import built, check_permuted, check_same_meaning

all_rules()
Case = tuple[type[Op], list[Any], Mapping[str, Any]]

X = np.random.default_rng(0).permutation(2 * 3 * 4 * 6).astype(np.float32).reshape(2, 3, 4, 6) / 100
Y = np.random.default_rng(1).random((2, 6, 3, 5), np.float32)
INTS = (X * 100).astype(np.int64)
IMAGE = {"input_spatial_dimensions": (2, 3), "kernel_spatial_dimensions": (2, 3), "output_spatial_dimensions": (2, 3)}
WINDOWS: Mapping[str, Any] = {"window_strides": (2, 1), "padding": (1, 0, 0, 1), "rhs_dilation": (1, 2)}
POOL: Mapping[str, Any] = {
    "dims": (2, 3), "kernel_shape": (2, 3), "strides": (2, 1), "padding": (1, 0, 0, 1), "dilations": (1, 1)
}  # fmt: skip
BATCHED: Mapping[str, Any] = {
    "lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (0,),
    "lhs_contracting_dimensions": (1, 3), "rhs_contracting_dimensions": (2, 1),
}  # fmt: skip


SUMS = parse_graph("""graph sums(%a: tensor<float32>, %b: tensor<float32>, %c: tensor<float32>) -> (%e) {
  %d = Add(%a, %b)
  %e = Mul(%d, %c)
}""")
NEGATIVE = parse_graph("graph negative(%a: tensor<float32>) -> (%b) {\n %b = Neg(%a)\n}")


def floats(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).random(shape, np.float32)


CASES: list[Case] = [
    (ops.Glu, [X], {"dim": 2}),
    (ops.GeGlu, [X], {"dim": 3}),
    (ops.Gtu, [X], {"dim": -1}),
    (ops.InstanceNorm, [X, X[0, :, 0, 0], X[1, :, 0, 0]], {}),
    (ops.FunctionReduce, [X, np.asarray([1, -1])], {"kind": "l2"}),
    (ops.FunctionReduce, [X], {"kind": "l1", "keepdims": True}),
    (ops.DotGeneral, [X, floats(2, 6, 3, 5)], BATCHED),
    (ops.DotGeneral, [X, floats(4, 5)], {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}),
    (ops.Contraction, [X, floats(4, 5)], {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}),
    (ops.DotGeneral, [X, X], {"lhs_contracting_dimensions": (0, 1, 2, 3), "rhs_contracting_dimensions": (0, 1, 2, 3)}),
    (ops.DotGeneral, [X, floats(2, 3, 6, 5)],
     {"lhs_batching_dimensions": (0, 1), "rhs_batching_dimensions": (0, 1),
      "lhs_contracting_dimensions": (3,), "rhs_contracting_dimensions": (2,)}),
    (ops.DotGeneralBias, [X, floats(4, 5), floats(5)],
     {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}),
    (ops.BitcastConvert, [X], {"dtype": DType.INT32}),
    (ops.ReducePrecision, [X], {"dtype": DType.FLOAT8E5M2}),
    (ops.BitcastConvert, [X], {"dtype": DType.UINT8}),
    (ops.QuantizeLinear, [X, np.float32(0.1), np.int8(3)], {"dtype": DType.INT8}),
    (ops.QuantizeLinear, [X, floats(3) + 1, np.asarray([1, 2, 3], np.uint8)], {"dtype": DType.UINT8, "axis": -3}),
    (ops.QuantizeLinear, [X, floats(2, 3, 2, 6) + 1], {"dtype": DType.INT8, "axis": 2, "block_size": 2}),
    (ops.DequantizeLinear, [INTS.astype(np.uint8), floats(4)], {"axis": 2}),
    (ops.DequantizeLinear, [INTS.astype(np.uint8), floats(2, 3, 4, 2)], {"axis": -1, "block_size": 3}),
    (ops.Conv, [floats(2, 4, 6, 7), floats(6, 2, 3, 2), floats(6)], {**IMAGE, **WINDOWS, "feature_group_count": 2}),
    (ops.Conv, [floats(2, 4, 6, 7), floats(6, 4, 3, 2)], {**IMAGE, **WINDOWS, "padding": "SAME"}),
    (ops.ConvTranspose, [floats(2, 4, 6, 7), floats(4, 3, 3, 2), floats(3)],
     {**IMAGE, **WINDOWS, "padding": (1, 0, -1, 1)}),
    (ops.MaxPool, [floats(2, 3, 5, 6)], POOL),
    (ops.AveragePool, [floats(2, 3, 5, 6)], {**POOL, "count_include_pad": True}),
    (ops.Resize, [X, np.asarray([7, 5])], {"dims": (2, 3), "mode": "linear"}),
    (ops.Resize, [X, None, np.asarray([2, 0.5], np.float32)], {"dims": (3, 1)}),
    (ops.Gather, [X, np.asarray([2, 0])], {"axis": 1}),
    (ops.Gather, [X, np.asarray([[1], [0]])], {"axis": -2}),
    (ops.Gather, [X, np.asarray(1)], {"axis": 2}),
    (ops.Gather, [X, np.asarray([[1], [0]])], {"axis": 2, "batch_dims": 1}),
    (ops.GatherElements, [X, INTS % 4], {"axis": 2}),
    (ops.ScatterElements, [X, INTS % 3, X * 2], {"axis": 1, "kind": "add"}),
    (ops.TopK, [X, np.asarray([2])], {"axis": -2}),
    (ops.Sort, [X, X * 2], {"dimension": 2}),
    (ops.PartialReduce, [X, INTS, np.float32(0.3), np.asarray(-1)], {"reduction_dim": 1, "log2_reduction": 1}),
    (ops.Map, [X, X[::-1].copy(), np.float32(0.3)], {"computation": SUMS, "dimensions": (0, 1, 2, 3)}),
    (ops.OneHot, [INTS % 4, np.asarray(4), np.float32(1), np.float32(0)], {"axis": 2}),
    (ops.OneHot, [INTS[0] % 4, np.asarray(4), np.float32(1), np.float32(0)], {}),
    (ops.BatchNormInference, [X, *(floats(3) + i for i in range(4))], {"feature_index": 1}),
    (ops.LRN, [X], {"axis": 1, "size": 3}),
    (ops.Reduce, [X, np.asarray([-1, 0])], {"kind": "max", "keepdims": True}),
    (ops.Reduce, [X, np.asarray([2])], {"kind": "mean"}),
    (ops.Reduce, [X], {"kind": "sum"}),
    (ops.ArgMax, [X], {"axis": 1}),
    (ops.ArgMin, [X], {"axis": -1, "keepdims": True}),
    (ops.CumSum, [X, np.asarray(-2)], {"reverse": True}),
    (ops.Softmax, [X], {"axis": -2}),
    (ops.LogSoftmax, [X], {"axis": 1}),
    (ops.Reshape, [X, np.asarray([6, 4, -1])], {}),
    (ops.Reshape, [X, np.asarray([2, 1, 3, 4, 2, 3])], {}),
    (ops.Transpose, [X], {"permutation": (2, 0, 3, 1)}),
    (ops.BroadcastTo, [X[:1, :, :1], np.asarray([5, 3, 2, 6])], {}),
    (ops.BroadcastTo, [X[0, :, :1], np.asarray([5, 3, 2, 6])], {}),
    (ops.Concatenate, [X, X[:, :2]], {"axis": -3}),
    (ops.Split, [X, np.asarray([1, 5])], {"axis": -1}),
    (ops.Split, [X], {"axis": 2, "count": 2}),
    (ops.Shape, [X], {}),
    (ops.Shape, [X], {"axes": (3, 1)}),
    (ops.Slice, [X, *map(np.asarray, ([1, -1, 0, 0], [9, -9, 3, 6], [1, -1, 2, 1]))], {}),
    (ops.Pad, [X, np.asarray([[0, 1], [2, 0], [-1, 0], [0, 0]]), np.float32(7)], {}),
    (ops.Pad, [X, np.asarray([[0, 1], [2, 0], [1, 0], [0, 3]])], {"mode": "edge"}),
    (ops.Tile, [X, np.asarray([1, 2, 1, 3])], {}),
    (ops.Reverse, [X], {"dimensions": (1, -1)}),
    (ops.ReverseSequence, [X, np.asarray([1, 3])], {"time_axis": 2, "batch_axis": 0}),
    (ops.DepthToSpace, [X.reshape(1, 8, 3, 6)], {"block_size": 2}),
    (ops.DepthToSpace, [X.reshape(1, 3, 6, 8)],
     {"block_size": 2, "mode": "CRD", "depth_dim": 3, "space_dims": (1, 2)}),
    (ops.SpaceToDepth, [X], {"block_size": 2}),
    (ops.Trilu, [X], {}),
    (ops.Trilu, [X, np.asarray(1)], {"upper": False}),
    (ops.DynamicUpdateSlice, [X, X[:1, :2, :, :3] * 9, np.asarray([1, 0, 0, 2])], {}),
]  # fmt: skip

ATTRIBUTES: Mapping[type[Op], Mapping[str, Any]] = {
    ops.Convert: {"dtype": DType.INT32},
    ops.Compare: {"comparison_direction": "LT"},
    ops.Map: {"computation": NEGATIVE},
    ops.RegexFullMatch: {"pattern": "-.*"},
}


def elementwise_cases() -> list[Case]:
    """Each elementwise op on operands of full rank, and with all but the first of one element, or of size one."""
    found: list[Case] = []
    for op in OPS.values():
        if is_elementwise(op):
            full = [sample(operand, X) for operand in op.operands]
            found.append((op, full, ATTRIBUTES.get(op, {})))
            if len(full) > 1:
                found += [(op, [full[0], *others], ATTRIBUTES.get(op, {})) for others in smaller(op, full)]
    return found


def smaller(op: type[Op], full: list[Array]) -> list[list[Any]]:
    scalars = [v.reshape(-1)[:1].reshape(()) for v in full[1:]]
    return [scalars] if op is ops.Clamp else [scalars, [v[:, :1] for v in full[1:]]]


def sample(operand: Operand, numbers: Array) -> Array:
    """`numbers` in an element type that the operand takes."""
    if operand.dtypes == {DType.STRING}:
        return np.asarray([str(number) for number in numbers.reshape(-1)], object).reshape(numbers.shape)
    wanted = (DType.FLOAT32, DType.COMPLEX64, DType.INT32, DType.UINT8, DType.BOOL)
    dtype = next(d for d in wanted if d in operand.dtypes)
    scaled = numbers if dtype in wanted[:2] else (numbers * 100) % 7
    if operand.name in ("min", "max"):
        return np.asarray(0.3 if operand.name == "min" else 0.9, np.float32)
    return np.asarray(scaled + 0.25 if dtype is DType.FLOAT32 else scaled).astype(dtype.numpy)


def is_elementwise(op: type[Op]) -> bool:
    return issubclass(op, Elementwise)


def follows(op: type[Op]) -> bool:
    """Whether `op` says anything about permuted axes."""
    own = op.permuted.__func__ is not Op.permuted.__func__  # type: ignore[attr-defined]
    return own or op.shared_axes is not None


def test_no_op_is_left_out() -> None:
    tried = {op for op, _, _ in [*CASES, *elementwise_cases()]}
    assert sorted(op.name for op in OPS.values() if follows(op) and op not in tried) == []


def name_of(value: Any) -> str:
    return str(getattr(value, "name", ""))


def is_fixed(op: type[Op], attributes: Mapping[str, Any]) -> bool:
    """Whether these axes cannot be told apart from their places."""
    by_batch = op is ops.Gather and attributes.get("batch_dims", 0) > 0
    return by_batch or (op is ops.BitcastConvert and attributes["dtype"] is DType.UINT8)


@pytest.mark.parametrize(("op", "operands", "attributes"), [*CASES, *elementwise_cases()], ids=name_of)
def test_permuted_ops_mean_the_same(op: type[Op], operands: list[Any], attributes: Mapping[str, Any]) -> None:
    """Whatever operand (or result) is asked to have another axis order; at least one way has to be found."""
    node = built(op, operands, attributes)
    found = 0
    for index, value in ((-1, node.results[0]), *enumerate(node.operands)):
        if value is None or value.rank < 2:
            continue
        for permutation in itertools.permutations(range(value.rank)):
            found += check_permuted(op, operands, attributes, index, permutation)
    assert bool(found) is not is_fixed(op, attributes)


def known_at_run_time(node: Node) -> None:
    """Let operands be values of which only the type is known."""
    for i, value in enumerate(node.operands):
        if value is not None:
            stand_in = constant(value.numpy(), dtype_of(value.numpy().dtype))
            stand_in.data = stand_in.known = None
            node.set_operand(i, stand_in)


@pytest.mark.parametrize(("op", "operands", "attributes"), CASES, ids=name_of)
def test_operands_known_at_run_time_only(op: type[Op], operands: list[Any], attributes: Mapping[str, Any]) -> None:
    """Starts, axes and sizes that are not constant: permuted correctly, or not at all."""
    node = built(op, operands, attributes)
    known_at_run_time(node)
    rank = node.operand(0).rank
    for permutation in itertools.permutations(range(rank)):
        permuted = op.permuted(node, 0, permutation)
        if permuted is not None:
            check_same_meaning(op, operands, attributes, permuted)


def test_operands_of_unknown_rank_do_not_follow() -> None:
    """They may have fewer axes, or the same."""
    node = built(ops.Add, [X, X], {})
    known_at_run_time(node)
    node.operand(1).type = node.operand(1).tensor_type.with_shape(None)
    node.result.type = node.result.tensor_type.with_shape(None)
    for index in (0, -1):
        assert ops.Add.permuted(node, index, (0, 2, 3, 1)) is None


COUNTED = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
EVERY_PERMUTATION: list[Case] = [
    (ops.Transpose, [COUNTED], {"permutation": (2, 0, 3, 1)}),
    (ops.BroadcastTo, [COUNTED[:1, :, :1], np.asarray([5, 3, 2, 6])], {}),
    (ops.Concatenate, [COUNTED, COUNTED[:, :2]], {"axis": 1}),
    (ops.Split, [COUNTED, np.asarray([1, 5])], {"axis": 3}),
    (ops.Slice, [COUNTED, np.asarray([1, -1, 0, 0]), np.asarray([9, -9, 3, 6]), np.asarray([1, -1, 2, 1])], {}),
    (ops.Pad, [COUNTED, np.asarray([[0, 1], [2, 0], [-1, 0], [0, 0]]), np.float32(7)], {}),
    (ops.Pad, [COUNTED, np.asarray([[0, 1], [2, 0], [1, 0], [0, 0]])], {"mode": "reflect"}),
    (ops.Tile, [COUNTED, np.asarray([1, 2, 1, 3])], {}),
    (ops.Reverse, [COUNTED], {"dimensions": (1, 3)}),
    (ops.ReverseSequence, [COUNTED, np.asarray([1, 3])], {"time_axis": 2, "batch_axis": 0}),
    (ops.DepthToSpace, [COUNTED.reshape(1, 8, 3, 6)], {"block_size": 2, "mode": "CRD"}),
    (ops.SpaceToDepth, [COUNTED], {"block_size": 2, "depth_dim": 1, "space_dims": (2, 3)}),
    (ops.DynamicUpdateSlice, [COUNTED, COUNTED[:1, :2, :, :3] * 9, np.asarray([1, 0, 0, 2])], {}),
    (ops.Shape, [COUNTED], {}),
    (ops.Gather, [COUNTED, np.asarray([2, 0])], {"axis": 1}),
    (ops.Gather, [COUNTED, np.asarray(1)], {"axis": 2}),
    (ops.Gather, [COUNTED, np.asarray([[0, 1, 1], [1, 0, 0]])], {"axis": 2}),
    (ops.GatherElements, [COUNTED, (COUNTED % 4).astype(np.int64)], {"axis": 2}),
    (ops.ScatterElements, [COUNTED, (COUNTED % 3).astype(np.int64), COUNTED * 2], {"axis": 1, "kind": "add"}),
    (ops.TopK, [COUNTED % 7, np.asarray([2])], {"axis": 2}),
    (ops.OneHot, [(COUNTED % 4).astype(np.int64), np.asarray(4), np.float32(1), np.float32(0)], {"axis": 2}),
    (ops.Sort, [COUNTED % 7, COUNTED], {"dimension": 2}),
]


@pytest.mark.parametrize(("op", "operands", "attributes"), EVERY_PERMUTATION, ids=name_of)
def test_ops_that_move_elements_follow_every_permutation(
    op: type[Op], operands: list[Any], attributes: Mapping[str, Any]
) -> None:
    rank = operands[0].ndim
    found = sum(check_permuted(op, operands, attributes, 0, p) for p in itertools.permutations(range(rank)))
    assert found == 24
    if op is not ops.Shape:
        rank = built(op, operands, attributes).results[0].tensor_type.rank
        for permutation in ((0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))):
            check_permuted(op, operands, attributes, -1, permutation)
