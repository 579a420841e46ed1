"""Random operands and attributes for neutral ops, drawn from their declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import REQUIRED, Attribute, Axis, Choice, ElementType, Flag, Float, Integer, Several
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.computations import COMPUTATIONS
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.op import OPS, Op
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType

RNG = np.random.Generator
Sample = tuple[list[Any], dict[str, Any]]
Draw = Callable[[RNG], Sample]
OFTEN = (DType.FLOAT32, DType.INT32, DType.INT64, DType.BOOL)
TYPES = (*OFTEN, *OFTEN, DType.UINT8, DType.INT8, DType.INT16, DType.UINT32, DType.UINT64)
RARE = (DType.UINT64, DType.UINT16, DType.INT16, DType.INT64, DType.BOOL)
SHAPES = ((2, 3, 4), (3, 4), (2, 3, 4), (1, 2, 1, 2, 2, 1, 3))


def samples(op: type[Op], count: int, seed: int = 0) -> Iterator[Sample]:
    """Operands (arrays, `Known` for constants, None for absent ones) and attributes that the op takes, as it declares;
    ops whose operands depend on each other have a draw of their own.
    """
    for number in range(count):
        yield _sample(op, np.random.default_rng((seed, number)))


def varied_samples(op: type[Op], count: int) -> Iterator[Sample]:
    """`samples`; then those of `MORE`; then a few of each rare element type, with computed operands, and
    with dynamic sizes.
    """
    yield from samples(op, count)
    for draw in MORE.get(op.name, ()):
        yield from (draw(np.random.default_rng(number)) for number in range(3))
    for dtype in RARE:
        yield from (retyped(op, one, dtype) for one in samples(op, 3, seed=1) if _is_typed(op, dtype))
    for one in samples(op, 5, seed=2):
        yield computed(one)
        if op.name == "Squeeze":  # removes the axes that are known to be 1
            continue
        yield opened(one, rank_is_known=True)
        yield opened(computed(one), rank_is_known=False)


def _sample(op: type[Op], rng: RNG) -> Sample:
    return OF_OP[op.name](rng) if op.name in OF_OP else declared(op, rng)


def _is_typed(op: type[Op], dtype: DType) -> bool:
    """Whether the op has a form of an element type; no format stores quantized values in 64 bits."""
    return bool(op.operands) and dtype in op.operands[0].dtypes and op.name != "DequantizeLinear"


def retyped(op: type[Op], sample: Sample, dtype: DType) -> Sample:
    """The sample with the first operand, and those of its type that may be, of another element type."""
    operands, attributes = sample
    first = operands[0]
    if first is None or isinstance(first, Known):
        return sample
    allowed = [op.operands[min(i, len(op.operands) - 1)].dtypes for i in range(len(operands))]
    found = [_retyped(v, first, dtype) if dtype in allowed[i] else v for i, v in enumerate(operands)]
    if not dtype.is_signed and dtype.is_integer and (op.moves is not None or op.integers is not None):
        found[0] = _with_highest_bits(found[0])
    return found, attributes


def _retyped(x: Any, first: Any, dtype: DType) -> Any:
    if isinstance(x, Known):
        return Known(_retyped(x.array, first, dtype))
    if x is None or np.asarray(x).dtype != np.asarray(first).dtype:
        return x
    return np.abs(x).astype(dtype.numpy)


def _with_highest_bits(x: Array) -> Array:
    """Every other element has the highest bit, which would be a sign."""
    found = np.array(x)
    found.reshape(-1)[::2] ^= found.dtype.type(1 << (8 * found.itemsize - 1))
    return found


def computed(sample: Sample) -> Sample:
    """The sample with inputs in place of constants."""
    return [v.array if isinstance(v, Known) else v for v in sample[0]], sample[1]


def opened(sample: Sample, rank_is_known: bool) -> Sample:
    """The sample with an operand of dynamic sizes and, where asked for, rank."""
    first, *rest = sample[0] or [None]
    if first is None or isinstance(first, Known | Open | Stored):
        return sample
    return [Open(np.asarray(first), rank_is_known), *rest], sample[1]


def declared(op: type[Op], rng: RNG, shape: tuple[int, ...] | None = None) -> Sample:
    """A sample by the declaration alone; `shape`: of the first operand, else one of `SHAPES`."""
    first = SHAPES[rng.integers(4)] if shape is None else shape
    operands: list[Any] = []
    for i, declared in enumerate(op.operands):
        if declared.optional and rng.integers(2):
            operands.append(None)
            continue
        allowed = [d for d in TYPES if d in declared.dtypes]
        dtype = allowed[rng.integers(len(allowed))] if allowed else DType.FLOAT32
        if i and operands[0] is not None and (declared.like or dtype_of(operands[0]) in declared.dtypes):
            dtype = dtype_of(operands[0])
        shape = first if not i or rng.integers(2) else _broadcast_to(rng, first)
        drawn_array = array(rng, dtype, shape)
        if declared.likely is not None and dtype.is_float:
            drawn_array = rng.uniform(*declared.likely, shape).astype(dtype.numpy)
        operands.append(drawn_array)
    rank = operands[0].ndim if operands and operands[0] is not None else 3
    given = [n for n, a in op.attributes.items() if a.default is REQUIRED or rng.integers(2)]
    return operands, {n: drawn(op.attributes[n], rng, rank) for n in given}


def _broadcast_to(rng: RNG, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to another one."""
    return tuple(n if rng.integers(3) else 1 for n in shape[rng.integers(len(shape) + 1) :])


@dataclass(frozen=True)
class Known:
    """An operand that is a constant: sizes, axes, pads, which most rules have to know."""

    array: Array


@dataclass(frozen=True)
class Open:
    """An operand of dynamic sizes, and maybe rank."""

    array: Array
    rank_is_known: bool


@dataclass(frozen=True)
class Stored:
    """A quantized operand, by its integers; a constant where asked for."""

    array: Array
    scale: float
    zero_point: int
    is_constant: bool = False

    @property
    def type(self) -> TensorType:
        quantization = Quantization(self.array.dtype.name, (self.scale,), (self.zero_point,))
        return TensorType(DType.FLOAT32, self.array.shape, quantization)


def known(*numbers: Any, dtype: Any = np.int64) -> Known:
    return Known(np.asarray(numbers if len(numbers) != 1 else numbers[0], dtype))


def dtype_of(a: Array) -> DType:
    return DType(a.dtype.name)


def array(rng: RNG, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Elements of a type: small ones, and few that are equal."""
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return rng.integers(0 if not dtype.is_signed else -9, 10, shape).astype(dtype.numpy)
    return np.asarray(rng.standard_normal(shape), dtype.numpy)


def drawn(attribute: Attribute, rng: RNG, rank: int) -> Any:
    """A value of an attribute's kind."""
    match attribute:
        case Choice():
            return attribute.choices[rng.integers(len(attribute.choices))]
        case Flag():
            return bool(rng.integers(2))
        case Axis():
            return int(rng.integers(-rank, rank)) if rank else 0
        case Integer():
            return int(rng.integers(1, 4))
        case Float():
            return float(rng.uniform(0.1, 1.5))
        case ElementType():
            return (DType.INT64, DType.INT32)[rng.integers(2)]
        case Several():
            axes = rng.permutation(rank)[: rng.integers(1, rank + 1)] if rank else []
            return tuple(int(axis) for axis in axes)
    return attribute.default


def _floats(rng: RNG, *shape: int) -> Array:
    return np.asarray(rng.standard_normal(shape), np.float32)


def _some(rng: RNG, *shape: int) -> Array:
    """Elements of one of several types."""
    return array(rng, (DType.FLOAT32, DType.INT32, DType.INT64, DType.UINT8, DType.UINT64)[rng.integers(5)], shape)


def _one(rng: RNG, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def _convolved(rng: RNG, transposed: bool = False) -> Sample:
    rank = int(_one(rng, 1, 2, 2, 3))
    groups = int(_one(rng, 1, 1, 2)) if rank < 3 else 1
    dims = tuple(range(2, 2 + rank))
    ins, outs = 2 * groups, 3 * groups
    dtype = _one(rng, DType.FLOAT32, DType.FLOAT32, DType.FLOAT32 if transposed else DType.INT8)
    x, bias = array(rng, dtype, (2, ins, *(5, 6, 5)[:rank])), _one(rng, None, array(rng, dtype, (outs,)))
    kernel = (ins, outs // groups) if transposed else (outs, ins // groups)
    names = ("input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions")
    window = {"window_strides": _each(rng, rank, 1, 3), "rhs_dilation": _each(rng, rank, 1, 3)}
    explicit = _each(rng, 2 * rank, 0, 2)
    padding = {"padding": explicit if transposed else _one(rng, explicit, "SAME"), "feature_group_count": groups}
    filters = Known(array(rng, dtype, (*kernel, *(2, 3, 2)[:rank])))
    return [x, filters, bias], {**dict.fromkeys(names, dims), **window, **padding}


def _each(rng: RNG, count: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.integers(low, high, count).tolist())


_PLAIN_WINDOW = {"kernel_shape": (2, 3), "strides": (1, 1), "dilations": (1, 1), "padding": (0, 0, 0, 0)}


def _pooled(rng: RNG, name: str) -> Sample:
    rank = int(_one(rng, 1, 2, 2, 3))
    dilations = _each(rng, rank, 1, 3) if rank == 2 else (1,) * rank
    padding = _one(rng, "SAME", (0,) * (2 * rank), _each(rng, 2 * rank, 0, 2))
    window = {"kernel_shape": (2, 3, 2)[:rank], "strides": _each(rng, rank, 1, 4), "dilations": dilations}
    dtype = _one(rng, DType.FLOAT32, DType.INT8 if name == "return_indices" else DType.FLOAT32)
    flag = {name: bool(rng.integers(2))}
    return [array(rng, dtype, (2, 3, *(6, 8, 5)[:rank]))], {
        "dims": tuple(range(2, 2 + rank)), **window, "padding": padding, **flag
    }  # fmt: skip


def _contracted(rng: RNG, bias: bool = False) -> Sample:
    batches = int(rng.integers(3))
    own = {"lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (0,)} if batches else {}
    x, y = (_floats(rng, 2, 3, 4), _floats(rng, 2, 4, 5)) if batches else (_floats(rng, 2, 3, 4), _floats(rng, 4, 5))
    at = 2 if own else 1
    more: list[Any] = [_one(rng, x, y)[:0].sum() + _floats(rng, 5)] if bias else []
    dims = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (at - 1,)}
    return [x, _one(rng, y, Known(y)), *more], {**own, **dims}


def _layer(rng: RNG, gates: int, states: int, **more: Any) -> Sample:
    steps, batch, inputs, cells = 3, 2, 4, 5
    weights = [Known(_floats(rng, gates * cells, n) / 2) for n in (inputs, cells)]
    bias = _one(rng, None, Known(_floats(rng, gates * cells)), Known(_floats(rng, 2 * gates * cells)))
    first = [_one(rng, None, _floats(rng, batch, cells)) for _ in range(states)]
    return [_floats(rng, steps, batch, inputs), *weights, bias, None, *first], {
        "reverse": bool(rng.integers(2)),
        **more,
    }


def _one_step(sample: Sample) -> Sample:
    (x, *rest), attributes = sample
    return [x[:1], *rest], attributes


def _stored(rng: RNG, dtype: Any, *shape: int, known: bool = True) -> Stored:
    return Stored(rng.integers(-8, 8, shape).astype(dtype), 0.125, 0 if known else 1, known)


def _strided(rng: RNG, stride: int) -> Sample:
    (_, kernel, _), attributes = _convolved(rng)
    rank = len(attributes["window_strides"])
    features = kernel.array.shape[1] * attributes["feature_group_count"]
    x = _floats(rng, 1, features, *(3 * stride, 6)[:rank])
    weights = Known(kernel.array.astype(np.float32))
    return [x, weights, None], {**attributes, "window_strides": (stride, 1)[:rank], "padding": (0,) * (2 * rank)}


def _along_depth(rng: RNG) -> Sample:
    names = ("input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions")
    window = {"window_strides": (int(rng.integers(1, 3)), 1, 1), "rhs_dilation": (int(rng.integers(1, 3)), 1, 1)}
    padding = (*_each(rng, 1, 0, 2), 0, 0, *_each(rng, 1, 0, 2), 0, 0)
    operands = [_floats(rng, 2, 4, 5, 3, 2), Known(_floats(rng, 6, 2, 2, 1, 1)), _one(rng, None, _floats(rng, 6))]
    numbers = {**dict.fromkeys(names, (2, 3, 4)), "feature_group_count": 2}
    return operands, {**numbers, **window, "padding": padding}


def _over_part_of_a_volume(rng: RNG) -> Sample:
    dims = _one(rng, (2,), (3, 4), (2, 3))
    ones, strides = (1,) * len(dims), _each(rng, len(dims), 1, 3)
    window = {"kernel_shape": (2, 3)[: len(dims)], "strides": strides, "dilations": ones, "padding": (0, 0) * len(dims)}
    return [_floats(rng, 2, 3, 4, 5, 6)], {"dims": dims, **window}


def _of_one_element(rng: RNG) -> Sample:
    (x, kernel, bias), attributes = _convolved(rng, True)
    rank = len(attributes["window_strides"])
    return [x[(..., *[slice(1)] * rank)], kernel, bias], {**attributes, "window_strides": (1 << 15, 1, 1)[:rank]}


def _normalized(rng: RNG, *operands: int, **more: Any) -> Sample:
    x = _floats(rng, 2, 4, 3, 5)
    return [x, *(np.abs(_floats(rng, n)) for n in operands)], {"epsilon": 1e-3, **more}


def _sliced(rng: RNG, axes: int = 3) -> Sample:
    strides = _one(rng, (1, 1, 1), (1, 2, 1), (-1, 1, 2), (2, -1, 1))[:axes]
    bounds = [known(rng.integers(-6, 6, axes)) for _ in range(2)]
    which = [] if axes == 3 else [known(_one(rng, (0, 1), (1, -1)))]
    return [_some(rng, 4, 5, 3), *bounds, *which, known(strides)], {}


def _padded(rng: RNG) -> Sample:
    x, mode = _some(rng, 3, 4, 2), _one(rng, "constant", "edge", "reflect", "symmetric", "wrap")
    low = -1 if mode in ("constant", "edge") else 0
    value = _one(rng, None, np.asarray(1, x.dtype)) if mode == "constant" else None
    return [x, known(rng.integers(low, 2, (3, 2))), value], {"mode": mode}


def _reduced(rng: RNG) -> list[Any]:
    return [None if not rng.integers(4) else known(_one(rng, [0], [-1], [0, 2], [1, 2], [0, 1, 2]))]


def _summed(rng: RNG) -> Sample:
    axis = known(int(rng.integers(3)))
    return [_some(rng, 2, 3, 4), axis], {"exclusive": bool(rng.integers(2)), "reverse": bool(rng.integers(2))}


def _gathered(rng: RNG) -> Sample:
    axis, batch = _one(rng, (0, 0), (1, 0), (-1, 0), (2, 1), (1, 1))
    x = _some(rng, 3, 4, 5)
    shape = _one(rng, (2,), (), (2, 3)) if not batch else (3, 2)
    return [x, rng.integers(0, x.shape[axis], shape)], {
        "axis": axis,
        "batch_dims": batch,
    }


def _written(rng: RNG, kind: str = "") -> dict[str, Any]:
    return {"kind": kind or _one(rng, "none", "add", "mul", "max", "min")}


def _positive_definite(r: RNG) -> Array:
    half = _floats(r, 2, 3, 3)
    return np.asarray(half @ half.transpose(0, 2, 1) + np.eye(3), np.float32)


def _aligned(r: RNG) -> Sample:
    """Log-probabilities of 6 steps, 2 sequences and 4 classes, of which targets have up to 2."""
    x = _floats(r, 6, 2, 4)
    x = x - np.log(np.exp(x).sum(axis=2, keepdims=True))
    return [x.astype(np.float32), r.integers(1, 4, (2, 2)), r.integers(4, 7, 2), r.integers(0, 3, 2)], {}


def _mapped(r: RNG) -> Sample:
    """max(a * b, c) - b of operands of one shape, or of a scalar; or a constant."""
    kind = (DType.FLOAT32, DType.INT32, DType.UINT8)[r.integers(3)]
    graph = Graph("computation")
    b = Builder(graph)
    x, y = (graph.add_input(TensorType(kind, ())) for _ in range(2))
    product = b(OPS["Mul"], x, y)
    results = (b(OPS["Sub"], b(OPS["Max"], product, b.scalar(2, product)), y), b.scalar(3, x))
    graph.outputs = [results[int(r.integers(4) == 0)]]
    shape = _one(r, (2, 3), (2, 3), ())
    return [array(r, kind, (2, 3)), array(r, kind, shape)], {
        "computation": graph, "dimensions": _one(r, (), (0, 1))
    }  # fmt: skip


def _reduced_in_groups(r: RNG) -> Sample:
    axis, log2 = int(r.integers(-3, 3)), int(r.integers(4))
    if r.integers(2):
        kind = _one(r, "sum", "prod", "max", "min")
        dtype = _one(r, DType.FLOAT32, DType.INT32)
        return [array(r, dtype, (2, 5, 4)), np.asarray(1, dtype.numpy)], {
            "kind": kind, "reduction_dim": axis, "log2_reduction": log2
        }  # fmt: skip
    x, places = np.round(_floats(r, 2, 5, 4) * 2), np.arange(40, dtype=np.int32).reshape(2, 5, 4)
    return [x, places, np.asarray(_one(r, 0, -np.inf), np.float32), np.asarray(-1, np.int32)], {
        "kind": _one(r, "max", "min"), "reduction_dim": axis, "log2_reduction": log2
    }  # fmt: skip


def _scattered(rng: RNG) -> Sample:
    x = _floats(rng, 4, 3)
    places = rng.permutation(4)[:2]
    return [x, np.stack([places] * 3, 1), _floats(rng, 2, 3)], {"axis": 0, "unique_indices": True, **_written(rng)}


def _of_places(rng: RNG) -> Sample:
    places, unique, dtype = rng.permutation(4)[:2, None], bool(rng.integers(2)), _one(rng, *OFTEN[:2], DType.INT8)
    indices = _one(rng, places, Known(places)) if unique else rng.integers(0, 2, (2, 1))
    return [array(rng, dtype, (4, 3)), indices, array(rng, dtype, (2, 3))], {
        "unique_indices": unique,
        **_written(rng, "" if unique else "none"),
    }


def _gathered_rows(rng: RNG) -> Sample:
    batch, depth = int(rng.integers(2)), int(rng.integers(3))
    indices = rng.integers(0, 2, (3, *(4,) * batch, depth)).astype(_one(rng, np.int32, np.int64))
    return [_some(rng, 3, 4, 2), indices], {"batch_dims": batch}


def _resized(rng: RNG) -> Sample:
    place = _one(rng, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    mode, (shape, dims) = (
        _one(rng, "nearest", "linear", "cubic"),
        _one(rng, ((1, 2, 4, 5), (2, 3)), ((2, 4, 5), (1, 2))),
    )
    x = _floats(rng, *shape) if mode == "linear" else array(rng, _one(rng, DType.FLOAT32, DType.INT8), shape)
    how = {"mode": mode, "coordinate_transformation_mode": place, "dims": dims}
    return [x, known(rng.integers(2, 9, 2)), None, None], how


def _blocks(rng: RNG) -> Sample:
    dims = {"block_size": 2, "mode": _one(rng, "DCR", "CRD"), "depth_dim": 1, "space_dims": (2, 3)}
    return [_some(rng, 1, 8, 4, 6)], dims


def _quantized(rng: RNG, real: bool) -> Sample:
    scale, zero = Known(np.float32(0.1)), Known(np.int8(3))
    stored = rng.integers(-128, 128, (2, 3, 4)).astype(np.int8)
    return ([_floats(rng, 2, 3, 4), scale, zero], {"dtype": DType.INT8}) if real else ([stored, scale, zero], {})


def _divided(rng: RNG) -> Sample:
    """Integers by others than 0, which is not defined."""
    x = _some(rng, 2, 3, 4)
    y = array(rng, dtype_of(x), (3, 4))
    return [x, np.where(y == 0, np.asarray(3, y.dtype), y)], {}


def _shifted(rng: RNG) -> Sample:
    """By fewer bits than there are, where the attribute says so."""
    x = array(rng, (DType.INT32, DType.INT64, DType.UINT8, DType.UINT32)[rng.integers(4)], (2, 3, 4))
    within = bool(rng.integers(2))
    return [x, rng.integers(0, 8 if within else 70, (3, 4)).astype(x.dtype)], {"in_range": within}


OF_OP: dict[str, Draw] = {
    "AveragePool": lambda r: _pooled(r, "count_include_pad"),
    "BatchNormInference": lambda r: _normalized(r, 4, 4, 4, 4, feature_index=1),
    "BatchToSpace": lambda r: ([_some(r, 4, 2, 3, 2), known([[0, 1], [1, 0]])], {"blocks": (2, 2)}),
    "Broadcast": lambda r: ([_some(r, *_one(r, (), (3,), (2, 3)))],
                            {"broadcast_sizes": _one(r, (), (2,), (2, 1, 3))}),
    "BroadcastInDim": lambda r: ([_some(r, 3)], {"broadcast_dimensions": (1,), "shape": (2, 3, 4)}),
    "BroadcastTo": lambda r: ([_some(r, 3, 1), known(2, 3, 4)], {}),
    "Concatenate": lambda r: ([_floats(r, 2, n, 3) for n in (1, 4, 2)], {"axis": _one(r, 1, -2)}),
    "Contraction": _contracted,
    "Conv": _convolved,
    "ConvTranspose": lambda r: _convolved(r, True),
    "DepthToSpace": _blocks,
    "DequantizeLinear": lambda r: _quantized(r, False),
    "Diagonal": lambda r: ([_some(r, 2, 4, 4)], {}),
    "Dot": lambda r: _one(r, ([_floats(r, 3, 4), _floats(r, 4, 2)], {}), ([_floats(r, 4), _floats(r, 4)], {})),
    "DotGeneral": _contracted,
    "DotGeneralBias": lambda r: _contracted(r, True),
    "DynamicBroadcastInDim": lambda r: ([_some(r, 3), known(2, 3, 4)], {"broadcast_dimensions": (1,)}),
    "DynamicIota": lambda r: ([known(3, 4)], {"iota_dimension": int(r.integers(2))}),
    "DynamicPad": lambda r: ([_floats(r, 3, 4), known(1, 0, 0, 2), np.float32(3)], {}),
    "DynamicReshape": lambda r: ([_some(r, 2, 3, 4), known(_one(r, (4, 6), (0, -1), (24,)))], {}),
    "DynamicSlice": lambda r: ([_some(r, 4, 5), known(1, 2)], {"slice_sizes": (2, 3)}),
    "DynamicUpdateSlice": lambda r: ([_floats(r, 4, 5), _floats(r, 2, 3), known(1, 2)], {}),
    "CumSum": _summed,
    "Gather": _gathered,
    "GatherElements": lambda r: ([_some(r, 3, 4), r.integers(0, 3, (2, 4))], {"axis": 0}),
    "GatherND": _gathered_rows,
    "GeGlu": lambda r: ([_floats(r, 2, 4, 6)], {"dim": _one(r, 1, -1), "approximate": _one(r, "none", "tanh")}),
    "Gemm": lambda r: ([_floats(r, 3, 4), _floats(r, 5, 4), _one(r, None, _floats(r, 5))],
                       {"alpha": 0.5, "beta": 2.0, "transB": True}),
    "GeneralSplit": lambda r: ([_some(r, 2, 6)], {"axis": 1, "sizes": _one(r, (1, 2, 3), (3, 3), (6,))}),
    "Glu": lambda r: ([_floats(r, 2, 4, 6)], {"dim": _one(r, 1, -1)}),
    "GridSample": lambda r: ([_floats(r, 1, 2, 4, 5), r.uniform(-1.2, 1.2, (1, 3, 2, 2)).astype(np.float32)],
                             {"mode": _one(r, "nearest", "linear", "cubic"), "align_corners": bool(r.integers(2)),
                              "padding_mode": _one(r, "zeros", "border", "reflection")}),
    "GroupNorm": lambda r: _normalized(r, 4, 4, num_groups=2),
    "Gru": lambda r: _layer(r, 3, 1, linear_before_reset=bool(r.integers(2))),
    "Gtu": lambda r: ([_floats(r, 2, 4, 6)], {"dim": _one(r, 1, -1)}),
    "InstanceNorm": lambda r: _normalized(r, 4, 4),
    "Iota": lambda r: ([], {"shape": (3, 4), "iota_dimension": int(r.integers(2))}),
    "LRN": lambda r: ([_floats(r, 2, 6, 3)], {"axis": 1, "size": _one(r, 3, 5)}),
    "Bidirectional": lambda r: (_layer(r, 1, 0)[0] + _layer(r, 1, 0)[0],
                                {"layer": "Rnn", "activations": ("tanh", "relu")}),
    "Lookup": lambda r: ([r.integers(0, 9, (2, 3)), known(1, 4, 7), _floats(r, 3), np.float32(-1)], {}),
    "NonMaxSuppression": lambda r: ([r.random((1, 5, 4), np.float32), r.random((1, 2, 5), np.float32), known([3]),
                                     np.float32([0.4]), np.float32([0.1])], {}),
    **dict.fromkeys(("RngNormal", "RngUniform"), lambda r: ([np.float32(1), np.float32(2), known(2, 3)], {"seed": 3})),
    "SelectBoxes": lambda r: ([r.random((6, 4), np.float32), r.permutation(np.float32([.9, .8, .6, .5, .2, .05])),
                               known(4, dtype=np.int32), np.float32(_one(r, 0.3, 0.7)), np.float32(0.1),
                               _one(r, None, np.float32(0), np.float32(0.5))], {}),
    "Range": lambda r: ([np.asarray(1), np.asarray(9), np.asarray(_one(r, 1, 2, 3))], {}),
    "Div": _divided,
    "FloorDiv": _divided,
    "FloorMod": _divided,
    "Rem": _divided,
    "Pow": lambda r: (_one(r, [abs(_floats(r, 2, 3)), _floats(r, 3)], [_some(r, 2, 3), np.asarray(2, np.int64)]), {}),
    **dict.fromkeys(("ShiftLeft", "ShiftRightLogical", "ShiftRightArithmetic"), _shifted),
    "Lstm": lambda r: _layer(r, 4, 2),
    "MaxPool": lambda r: _pooled(r, "return_indices"),
    "OneHot": lambda r: ([r.integers(-2, 5, (3, 2)), Known(np.asarray(5)), np.float32(2), np.float32(-1)],
                         {"axis": _one(r, 0, -1)}),
    "Pad": _padded,
    "QuantizeLinear": lambda r: _quantized(r, True),
    "RealDynamicSlice": lambda r: _sliced(r, 2),
    "Reduce": lambda r: ([_floats(r, 2, 3, 4), *_reduced(r)],
                         {"kind": _one(r, "sum", "prod", "max", "min", "mean"), "keepdims": bool(r.integers(2))}),
    "FunctionReduce": lambda r: ([_floats(r, 2, 3, 4), *_reduced(r)],
                                 {"kind": _one(r, "l1", "l2", "sum_square", "log_sum_exp")}),
    "ReduceWindow": lambda r: ([_floats(r, 4, 6)], {"kind": _one(r, "sum", "max"), "window_dimensions": (2, 3),
                                                    "base_dilations": _one(r, (), (1, 2), (3, 1))}),
    "Reshape": lambda r: ([_some(r, 2, 3, 4), known(_one(r, (4, 6), (2, -1), (24,), (2, 12)))], {}),
    "Resize": _resized,
    "ReverseSequence": lambda r: _one(
        r,
        ([_some(r, 4, 3, 2), r.integers(1, 5, 3)], {"time_axis": 0, "batch_axis": 1}),
        ([_some(r, 2, 3, 4), r.integers(1, 5, 2)], {"time_axis": 2, "batch_axis": 0}),
    ),
    "Rnn": lambda r: _layer(r, 1, 1),
    "RoiAlign": lambda r: ([_floats(r, 1, 2, 8, 8), np.asarray([[1, 1, 6, 5]], np.float32), np.zeros(1, np.int64)],
                           {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "mode": _one(r, "avg", "max")}),
    "BatchNormGrad": lambda r: ([_floats(r, 2, 3, 4), *(abs(_floats(r, 3)) + 0.5 for _ in range(3)),
                                 _floats(r, 2, 3, 4)], {}),
    "BatchNormTraining": lambda r: ([_floats(r, 2, 4, 3), _floats(r, 3), _floats(r, 3)],
                                    {"feature_index": _one(r, 2, -1)}),
    "Cholesky": lambda r: ([_positive_definite(r)], {"lower": bool(r.integers(2))}),
    "CTCLoss": _aligned,
    "Map": _mapped,
    "PartialReduce": _reduced_in_groups,
    "MaxRoiPool": lambda r: ([_floats(r, 2, 3, 6, 6), np.float32([[0, 0, 0, 4, 5], [1, 2, 3, 5, 5]])],
                             {"pooled_shape": (2, 3), "layout": _one(r, "NCHW", "NHWC")}),
    "ScatterElements": _scattered,
    "InteriorPad": lambda r: ([_floats(r, 2, 3), _one(r, None, np.float32(3))],
                              {"interior_padding": _one(r, (0, 2), (1, 0), (2, 1))}),
    "SelectAndScatter": lambda r: ([np.round(_floats(r, 6, 6)), _floats(r, 4, 4), np.asarray(0.5, np.float32)],
                                   {"select_type": _one(r, "GE", "GT", "LE", "LT"), "window_dimensions": (3, 3),
                                    "window_strides": (2, 2), "padding": (1, 1, 2, 2),
                                    "computation": _one(r, *COMPUTATIONS)}),
    "ScatterND": _of_places,
    "SegmentReduce": lambda r: ([_floats(r, 5, 2), r.integers(0, 3, 5).astype(np.int32), known(3).array.reshape(())],
                                {"kind": _one(r, "sum", "prod", "max", "min")}),
    "SetDimensionSize": lambda r: ([_floats(r, 4, 3), known(2).array.reshape(())], {"dimension": 0}),
    "Slice": _sliced,
    "SpaceToBatch": lambda r: ([_some(r, 2, 3, 4, 2), known([[0, 1], [1, 1]])], {"blocks": (2, 2)}),
    "SpaceToDepth": _blocks,
    "Split": lambda r: ([_some(r, 2, 6, 3), _one(r, None, known(1, 2, 3))], {"axis": 1, "count": 3}),
    "Squeeze": lambda r: ([_some(r, 1, 3, 1), _one(r, None, known([0]), known([0, 2]))], {}),
    "Tile": lambda r: ([_some(r, 2, 3), known(_one(r, (2, 1), (1, 3), (2, 2)))], {}),
    "TopK": lambda r: (
        [r.permutation(24).reshape(2, 3, 4).astype(_one(r, np.float32, np.int16, np.int32)),
         _one(r, known([2]), np.asarray([2]))],
        {"axis": _one(r, -1, 1), "largest": bool(r.integers(2)), "dtype": _one(r, DType.INT32, DType.INT64)}),
    "Transpose": lambda r: ([_some(r, 2, 3, 4)], {"permutation": _one(r, (0, 2, 1), (2, 0, 1), (2, 1, 0))}),
    "Unsqueeze": lambda r: ([_some(r, 2, 3), known(_one(r, [0], [1, 3], [-1]))], {}),
}  # fmt: skip
"""Draws for ops whose operands depend on each other, or whose kinds do not say what their numbers mean."""
_LAST = {"block_size": 2, "depth_dim": 3, "space_dims": (1, 2)}
MORE: dict[str, tuple[Draw, ...]] = {
    "Compare": (lambda r: ([known([0.5, 1.0], dtype=np.float32), _floats(r, 2)], {"comparison_direction": "LT"}),),
    "DepthToSpace": (lambda r: ([_floats(r, 2, 3, 4, 8)], _LAST),),
    "SpaceToDepth": (lambda r: ([_floats(r, 2, 4, 6, 3)], _LAST),),
    "HardSigmoid": (lambda r: ([_floats(r, 3, 4)], {"slope": 1 / 6, "offset": 0.5}),),
    "NonZero": (lambda r: ([np.asarray(bool(r.integers(2)))], {}),),
    "Pad": (
        lambda r: ([_floats(r, 3, 4), np.asarray([[-1, 2], [1, -2]]), None], {"mode": "constant"}),
        lambda r: ([_some(r, 2, 3, 1, 2, 3, 2), known([[0, 0], [0, 0], [1, 0], [0, 0], [0, 0], [0, 1]]), None], {}),
    ),
    "Resize": (
        lambda r: ([_floats(r, 2, 3), None, known([2.0], dtype=np.float32), None], {"dims": (1,), "mode": "nearest"}),
    ),
    "Slice": (lambda r: ([_some(r, 2, 3, 1, 2, 3, 2), known([0] * 6), known([9, 9, 9, 9, 2, 9]), known([1] * 6)], {}),),
    "Reduce": (
        lambda r: ([_floats(r, 2, 3, 2, 1, 2, 2), known([1, 2, 4])], {"kind": "sum", "keepdims": bool(r.integers(2))}),
        lambda r: ([_floats(r, 3, 0, 2), known([1])], {"kind": _one(r, "sum", "prod", "mean"), "keepdims": True}),
        lambda r: ([_floats(r, 600, 700), known([0, 1])], {"kind": _one(r, "sum", "mean"), "keepdims": False}),
        lambda r: ([array(r, DType.BOOL, (2, 3)), known([1])], {"kind": _one(r, "any", "all"), "keepdims": False}),
        lambda r: ([Open(_floats(r, 2, 3), False), None], {"kind": "sum", "keepdims": False}),
        lambda r: ([_floats(r, 2, 3), np.asarray([1])], {"kind": _one(r, "max", "min", "prod"), "keepdims": True}),
        lambda r: ([_floats(r, 2, 3), Known(np.zeros(0, np.int64))], {"kind": _one(r, "max", "sum")}),
        lambda r: (
            [_with_highest_bits(array(r, DType.UINT64, (4, 3))), known([0])],
            {"kind": _one(r, "max", "min"), "keepdims": False},
        ),
        lambda r: ([_stored(r, np.int8, 1, 3, 4, 6, known=False), known([1, 2])], {"kind": "mean", "keepdims": True}),
    ),
    "Lstm": (lambda r: _one_step(_layer(r, 4, 2)),),
    "Gru": (lambda r: _one_step(_layer(r, 3, 1)),),
    "Rnn": (lambda r: _one_step(_layer(r, 1, 1)),),
    "Conv": (lambda r: _strided(r, 1 << 15), _along_depth),
    "ConvTranspose": (_of_one_element,),
    "Convert": (
        lambda r: ([Known(_floats(r, 2, 3).astype(np.float16))], {"dtype": DType.FLOAT32}),
        lambda r: ([_stored(r, np.int16, 2, 3)], {"dtype": DType.FLOAT32}),
        lambda r: ([_stored(r, np.int64, 2, 3)], {"dtype": DType.FLOAT32}),
        lambda r: ([_stored(r, DType.INT4.numpy, 2, 3)], {"dtype": DType.FLOAT32}),
        lambda r: ([_stored(r, DType.INT4.numpy, 64, 1024)], {"dtype": DType.FLOAT32}),
    ),
    "MaxPool": (_over_part_of_a_volume,),
    "AveragePool": (
        lambda r: ([_stored(r, np.int8, 1, 3, 4, 6, known=False)], {"dims": (2, 3), **_PLAIN_WINDOW}),
        _over_part_of_a_volume,
    ),
    "Select": (lambda r: ([array(r, DType.BOOL, (2, 3)), *(array(r, DType.UINT64, (2, 3)) for _ in range(2))], {}),),
    "CumSum": (
        lambda r: (
            [
                array(r, DType.INT32, (2, 3)),
                known(1).array.reshape(()),
            ],
            {},
        ),
        lambda r: ([array(r, DType.INT32, (2, 3)), Known(np.asarray(1))], {"exclusive": bool(r.integers(2))}),
    ),
    "ScatterElements": (
        lambda r: (
            [array(r, DType.FLOAT16, (4,)), r.permutation(4)[:2], array(r, DType.FLOAT16, (2,))],
            {"kind": "add"},
        ),
    ),
    "ScatterND": (
        lambda r: (
            [array(r, DType.FLOAT16, (4, 3)), r.permutation(4)[:2, None], array(r, DType.FLOAT16, (2, 3))],
            {"kind": "add"},
        ),
        lambda r: ([None, r.permutation(4)[:2, None], _floats(r, 2, 3), known(4, 3)], {"kind": "add"}),
        lambda r: ([None, r.permutation(4)[:2, None], _floats(r, 2, 3), known(4, 3)], {"kind": _one(r, "none", "max")}),
        lambda r: ([_floats(r, 4, 3), r.permutation(4)[:2, None].astype(np.int32), _floats(r, 2, 3)], {"kind": "none"}),
        lambda r: (
            [
                _with_highest_bits(array(r, DType.UINT64, (4,))),
                np.asarray([[2], [1], [0]]),
                array(r, DType.UINT64, (3,)),
            ],
            {"kind": _one(r, "max", "min")},
        ),
    ),
    "Sub": (lambda r: ([Known(_floats(r, 2, 3)), _floats(r, 2, 3)], {}),),
    "SegmentReduce": (
        lambda r: ([_floats(r, 5, 2), r.integers(0, 3, 5), Known(np.asarray(3))], {"kind": _one(r, "sum", "max")}),
        lambda r: ([_floats(r, 60, 30), r.integers(-1, 3, 60), Known(np.asarray(3))], {"kind": _one(r, "sum", "max")}),
    ),
    "Gather": (
        lambda r: ([_some(r, 2, 1, 3, 2, 2, 3), known([1, 0])], {"axis": 2, "batch_dims": 0}),
        lambda r: ([_some(r, 3, 400), known(np.arange(5, 300))], {"axis": 1, "batch_dims": 0}),
        lambda r: ([_stored(r, np.int8, 5, 3, known=False), r.integers(0, 5, 4)], {"axis": 0, "batch_dims": 0}),
    ),
    "DotGeneral": (
        lambda r: (
            [array(r, DType.INT32, (2, 3, 4)), Known(np.ones(_one(r, 3, (1, 3)), np.int32))],
            {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (-1,)},
        ),
        lambda r: (
            [Known(np.ones((1, 1, 3), np.int64)), array(r, DType.INT64, (4, 3, 2))],
            {
                **{f"{side}_batching_dimensions": (0,) for side in ("lhs", "rhs")},
                **{"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (1,)},
                "output_permutation": _one(r, (), (1, 0, 2)),
            },
        ),
    ),
    "Concatenate": (
        lambda r: ([array(r, DType.INT64, (1,)) for _ in range(200)], {"axis": 0}),
        lambda r: ([_floats(r, 1, 2, 1, n, 2, 1, 3) for n in (2, 1)], {"axis": 3}),
    ),
    "TopK": (
        lambda r: (
            [np.asarray([[3, -(1 << 31), (1 << 31) - 1, 0]], np.int32), known([_one(r, 2, 3)])],
            {"axis": -1, "largest": False, "dtype": DType.INT32},
        ),
    ),
    "Atan": (lambda r: ([_floats(r, 2, 3)], {}), lambda r: ([_floats(r, 2, 3).astype(np.float64)], {})),
    "DequantizeLinear": (lambda r: (_quantized(r, False)[0], {"dtype": DType.FLOAT16}),),
    "BitcastConvert": (
        lambda r: ([array(r, DType.INT32, (2, 3))], {"dtype": _one(r, DType.UINT32, DType.FLOAT32)}),
        lambda r: ([array(r, DType.INT16, (2, 4))], {"dtype": DType.UINT16}),
        lambda r: ([array(r, DType.BOOL, (2, 4))], {"dtype": DType.UINT8}),
        lambda r: ([array(r, DType.INT64, (2, 4))], {"dtype": DType.INT32}),
    ),
    "ArgMax": (lambda r: ([_floats(r, 2, 3)], {"axis": 1, "dtype": DType.INT32}),),
    "ArgMin": (lambda r: ([_floats(r, 2, 3)], {"axis": 1, "dtype": DType.INT32}),),
}
"""Samples beside those of `OF_OP`: long axes, many axes, axes without elements."""
