"""Operands at the edges of what neutral ops take: special elements, all element types, few and many axes, empty
tensors, equal elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.op import Elementwise, Op
from onnxtfl.ir.types import DType
from tests.unit.op_samples import OF_OP, RNG, Draw, Known, Open, Sample, declared, known, retyped, samples

TYPES = (DType.FLOAT16, DType.BOOL, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.UINT32, DType.INT64)
MODEST = (-0.0, 0.0, 1e-30, -1.5, 2.5, 0.5, -1.0, 1.0, 3e4)
FINITE = (*MODEST, 1e30, -1e30)
ELEMENTS = (*FINITE, np.inf, -np.inf, np.nan)
NOT_SPECIAL = {
    "BCELoss": "probabilities",
    "Range": "too many elements from there",
    "OneHot": "ONE_HOT reads the lowest 32 bits of int64 indices",
}
"""Ops whose first operand has no special elements, and why."""
ONE_TYPE = {
    **dict.fromkeys(("Div", "FloorDiv", "Rem", "FloorMod"), "fractions would be divisors of 0"),
    "SelectAndScatter": "its divisors would be 0",
}
"""Ops whose samples get no other element type."""
AXES = ((), (3,), (2, 1, 3, 2), (2, 1, 2, 3, 2), (0, 3), (2, 0, 3))
"""Shapes of rank 0 to 5, and of empty tensors."""


def elements_for(op: type[Op], clips: bool) -> tuple[float, ...]:
    """The special floats that an op has to compute with.

    `clips`: in a runtime whose arithmetic has no infinite results, of inner values too, and kernels that drop NaN.
    """
    if op.moves is not None:
        return ELEMENTS
    if not issubclass(op, Elementwise) or op.name == "Convert":
        return MODEST  # sums cancel or overflow; casts of floats beyond the range of integers are not defined
    return FINITE if clips else ELEMENTS


def edge_samples(op: type[Op], *, clips: bool) -> Iterator[Sample]:
    """Samples of an op for each edge, for a runtime as of `elements_for`. Not all operands fit together."""
    drawn = list(samples(op, 6, seed=3))
    if op.name not in NOT_SPECIAL:
        yield from (special(one, elements_for(op, clips)) for one in drawn)
    types = [dtype for dtype in TYPES if op.operands and dtype in op.operands[0].dtypes and op.name not in ONE_TYPE]
    if op.moves is None and not issubclass(op, Elementwise):  # half floats are rounded at each node
        types = [dtype for dtype in types if dtype is not DType.FLOAT16]
    yield from (retyped(op, one, dtype) for one, dtype in zip(cycle(drawn), types, strict=False))
    if op.name not in OF_OP:
        yield from (declared(op, np.random.default_rng(len(shape)), shape) for shape in AXES)
    yield from (draw(np.random.default_rng(9)) for draw in EDGES.get(op.name, ()))


def special(sample: Sample, elements: Sequence[float]) -> Sample:
    """The sample with other floats, and the least and greatest integers, among the elements of the first operand."""
    (*operands,), attributes = sample
    if operands and isinstance(operands[0], np.ndarray):
        operands[0] = _with(operands[0], elements)
    return operands, attributes


def _with(x: Array, elements: Sequence[float]) -> Array:
    found = np.array(x)
    places = found.reshape(-1)[::2]
    if found.dtype.kind == "f":
        places[:] = np.resize(np.asarray(elements), places.shape)
    elif found.dtype.kind in "iu":
        limits = np.iinfo(found.dtype)
        places[:] = np.resize(np.asarray([limits.min, limits.max]), places.shape)
    return found


def _floats(r: RNG, *shape: int) -> Array:
    return np.asarray(r.standard_normal(shape), np.float32)


def _equal(r: RNG, *shape: int) -> Array:
    """Few different elements of one of several types."""
    return r.integers(0, 3, shape).astype((np.float32, np.int32, np.uint8, np.int64)[r.integers(4)])


EDGES: Mapping[str, tuple[Draw, ...]] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), tuple(
        lambda r, axis=axis: ([_equal(r, 3, 2, 4)], {"axis": axis}) for axis in (0, -1, -2)
    )),
    "TopK": tuple(
        lambda r, largest=largest: ([_equal(r, 2, 6), known([4])],
                                    {"axis": -1, "largest": largest, "dtype": DType.INT64})
        for largest in (True, False)
    ),
    "Sort": (lambda r: ([_equal(r, 4, 3)], {"dimension": 0}),),
    "MaxPool": (
        lambda r: ([_equal(r, 1, 2, 4, 6).astype(np.float32)],
                   {"dims": (2, 3), "kernel_shape": (2, 2), "strides": (2, 2), "dilations": (1, 1), "padding": (0,) * 4,
                    "return_indices": True}),
    ),
    "Transpose": tuple(
        lambda r, order=order: ([_floats(r, *(2, 0, 3, 2, 4)[:len(order)])], {"permutation": order})
        for order in ((), (0,), (1, 0), (3, 1, 0, 2), (4, 0, 3, 1, 2))
    ),
    "Reduce": tuple(
        lambda r, kind=kind, shape=shape, axes=axes: ([_floats(r, *shape), axes],
                                                      {"kind": kind, "keepdims": kind == "sum"})
        for kind, shape, axes in (
            ("sum", (), None), ("max", (3,), known([-1])), ("mean", (2, 3, 2, 3), known([-1, 1])),
            ("prod", (2, 0), known([1])), ("min", (2, 1, 2, 3, 2), known([0, -2])),
            ("sum", (0, 3), known([0])), ("sum", (0, 3), known([1])),
        )
    ),
    "Concatenate": (
        lambda r: ([_floats(r, 2, 0), _floats(r, 2, 3)], {"axis": -1}),
        lambda r: ([_floats(r, 0), _floats(r, 0)], {"axis": 0}),
        lambda r: ([_floats(r, 1, 2, 1, n, 2) for n in (1, 2)], {"axis": -2}),
    ),
    "Reshape": (
        lambda r: ([_floats(r), known([1, 1])], {}),
        lambda r: ([_floats(r, 1), Known(np.zeros(0, np.int64))], {}),
        lambda r: ([_floats(r, 0, 3), known(3, 0)], {}),
        lambda r: ([_floats(r, 2, 1, 2, 3, 2), known(3, -1)], {}),
    ),
    "Gather": (
        lambda r: ([_floats(r, 4), np.asarray(3)], {"axis": 0}),
        lambda r: ([_floats(r, 4, 2), np.zeros(0, np.int64)], {"axis": -2}),
        lambda r: ([_floats(r, 2, 1, 2, 3, 2), np.asarray([[0, 2]])], {"axis": -2}),
    ),
    "Slice": (
        lambda r: ([_floats(r, 5), known([9]), known([-9]), known([-2])], {}),
        lambda r: ([_floats(r, 5), known([3]), known([2]), known([1])], {}),
        lambda r: ([_floats(r, 0, 3), known([0, -2]), known([9, 9]), known([1, 1])], {}),
    ),
    "Pad": (
        lambda r: ([_floats(r, 0, 2), known([[1, 1], [0, 1]]), np.float32(np.inf)], {"mode": "constant"}),
        lambda r: ([_floats(r, 3), known([[2, -1]]), None], {"mode": "constant"}),
    ),
    "Tile": (
        lambda r: ([_floats(r, 2, 3), known(0, 2)], {}),
        lambda r: ([_floats(r, 0, 3), known(2, 1)], {}),
    ),
    "DotGeneral": tuple(
        lambda r, m=m, k=k, n=n: ([_floats(r, m, k), _floats(r, k, n)],
                                  {"lhs_contracting_dimensions": (-1,), "rhs_contracting_dimensions": (0,)})
        for m, k, n in ((0, 3, 2), (2, 0, 3), (2, 3, 0), (1, 1, 1))
    ),
    "CumSum": (
        lambda r: ([_floats(r, 0, 3), known(1).array.reshape(())], {}),
        lambda r: ([_equal(r, 2, 3, 2, 2), np.asarray(-2)], {"reverse": True}),
    ),
    "BroadcastTo": (
        lambda r: ([_floats(r), known(2, 3)], {}),
        lambda r: ([_floats(r, 1, 3), known(0, 3)], {}),
    ),
    "Softmax": (lambda r: ([np.float32([[-1e30, 1e30, 1e30, 0], [-1e30, -1e30, 5, -3]])], {"axis": -1}),),
    "ScatterND": (
        lambda r: ([_floats(r, 4, 3), np.zeros((0, 1), np.int64), _floats(r, 0, 3)], {"kind": "none"}),
        lambda r: ([_equal(r, 4).astype(np.int32), np.asarray([[1], [1], [3]]), np.int32([7, -2, 5])], {"kind": "add"}),
    ),
    **dict.fromkeys(("Div", "Rem", "FloorDiv", "FloorMod"), (
        lambda r: ([np.int32([-7, 7, -7, 7, 2**31 - 1, -(2**31), 0]), np.int32([2, -2, -2, 2, -1, 2, -3])], {}),
        lambda r: ([np.int64([-7, 7, 2**63 - 1, -(2**63), 2**53 + 1, -(2**62)]),
                    np.int64([2, -2, 3, 7, 2, 10**9 + 7])], {}),
        lambda r: ([np.uint8([255, 7, 0]), np.uint8([2, 255, 3])], {}),
    )),
    **dict.fromkeys(("ShiftLeft", "ShiftRightLogical", "ShiftRightArithmetic"), (
        lambda r: ([np.int32([-1, 1, -(2**31), 5, 7]), np.int32([31, 31, 1, 32, 0])], {}),
    )),
    "Pow": (
        lambda r: ([np.float32([0, 0, -8, 2, 1e30, -1]), np.float32([0, 2, 3, -1, 2, 5])], {}),
        lambda r: ([np.int32([0, -3, 2, 7]), np.int32([0, 3, 31, 1])], {}),
    ),
    "Shape": tuple(
        lambda r, shape=shape, known=known: ([Open(_floats(r, *shape), known)], {})
        for shape in ((), (3,), (0, 3), (2, 1, 3, 2), (2, 0, 2, 3, 2))
        for known in (True, False)
    ),
    "Broadcast": (
        lambda r: ([_floats(r, 0, 3)], {"broadcast_sizes": (2, 1)}),
        lambda r: ([_floats(r, 2, 3)], {"broadcast_sizes": (0,)}),
    ),
    "RealDynamicSlice": tuple(
        lambda r, shape=shape, bounds=bounds: (
            [_floats(r, *shape), *(known([n] * len(shape)) for n in bounds)], {})
        for shape, bounds in (((3,), (0, 9, 2)), ((4,), (9, -9, -1)), ((0, 3), (0, 9, 1)),
                              ((2, 1, 3, 2), (9, -9, -2)), ((2, 0, 2, 3, 2), (0, 9, 1)))
    ),
    "Iota": tuple(
        lambda r, shape=shape, axis=axis: ([], {"shape": shape, "iota_dimension": axis})
        for shape, axis in (((5,), 0), ((0, 3), 1), ((2, 0), 0), ((2, 1, 3, 2), 2), ((1, 2, 1, 3, 2), 4))
    ),
    "DynamicIota": tuple(
        lambda r, shape=shape, axis=axis: ([np.asarray(shape)], {"iota_dimension": axis})
        for shape, axis in (((5,), 0), ((0, 3), 1), ((2, 1, 3, 2), 2))
    ),
    **dict.fromkeys(("Glu", "Gtu", "GeGlu"), tuple(
        lambda r, shape=shape, dim=dim: ([_floats(r, *shape)], {"dim": dim})
        for shape, dim in (((4,), 0), ((0, 2), -1), ((2, 1, 6), -1), ((2, 1, 2, 3, 2), -3))
    )),
    "NonMaxSuppression": tuple(
        lambda r, count=count, limit=limit, overlap=overlap, centered=centered: (
            [np.round(r.normal(0, 3, (2, count, 4))).astype(np.float32), _equal(r, 2, 2, count).astype(np.float32),
             known([limit]), np.float32([overlap]), np.float32([1])], {"center_point_box": centered})
        for count, limit in ((6, 3), (1, 2), (5, 0), (7, 9))
        for overlap, centered in ((0.0, False), (0.5, True), (1.0, False))
    ),
    "Clamp": (lambda r: ([np.float32([-5, 0.5, 9]), np.float32(2), np.float32(1)], {}),),
    "OneHot": (
        lambda r: ([np.zeros((0,), np.int64), Known(np.asarray(3)), np.float32(2), np.float32(-1)], {"axis": -1}),
    ),
    "Range": (
        lambda r: ([np.asarray(5), np.asarray(1), np.asarray(2)], {}),
        lambda r: ([np.asarray(5), np.asarray(-6), np.asarray(-3)], {}),
        lambda r: ([np.float32(0), np.float32(1), np.float32(0.3)], {}),
    ),
}  # fmt: skip
"""Draws at the edges of ops whose operands depend on each other: ranks, sizes of 0, negative axes, equal elements."""
