"""A case: one op on operands, with the expected results."""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Graph, Node, State, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import DType, TensorType, dtype_of
from onnxtfl.rewriting.registry import Form
from onnxtfl.targets.instance import OpInstance
from onnxtfl.targets.table import Parameter, entry
from onnxtfl.targets.tflite import TfliteTarget

Array = np.ndarray[Any, Any]
Evaluate = Callable[..., Sequence[Array]]
Position = tuple[str, int]
"""("operands" or "results", index)"""
FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = (*FLOATS, *INTEGERS)
ALL = (*NUMBERS, "bool", "string")


@dataclass
class Case:
    """One op with its operands, and the expected results.

    - `types`: the element type of each type variable in the op's signature ("qint8": quantized).
    - `mode`: "equal", "scalar", "broadcast", "nan", the fused activation, or which axis has size 0 (empty.py).
    - `extra`: further constraints of the form: options, ``constant``, ranks of other variables.
    - `constants`: the indices of constant operands; `states`: those of variables, which are initially zero.
    - `dynamic`: whether shapes of results are known only at run time.
    - `open`: whether sizes of 0 are dynamic in the file.
    - `wide`: whether inputs and outputs of int16 are int32 in the file, between CASTs.
    - `quantizations`: those of quantized operands and results; `real`: the results before rounding.
    - `bounds`: the allowed absolute errors of the results (empty: `tolerance` applies).
    - `evaluate`: the op in NumPy; quantized cases are made with it.
    """

    op: str
    types: Mapping[str, str]
    operands: Sequence[Array | None]
    expected: Sequence[Array]
    options: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "equal"
    extra: Mapping[str, Any] = field(default_factory=dict)
    constants: frozenset[int] = frozenset()
    states: frozenset[int] = frozenset()
    dynamic: bool = False
    open: bool = False
    wide: bool = False
    quantizations: Mapping[Position, Quantization] = field(default_factory=dict)
    real: Sequence[Array] = ()
    bounds: Sequence[Array] = ()
    tolerance: float = 1e-4
    evaluate: Evaluate | None = None

    def __post_init__(self) -> None:
        """Make uint16 operands constants, since tflite-runtime's Python interface cannot set such inputs."""
        self.constants |= {i for i, x in enumerate(self.operands) if x is not None and x.dtype == np.uint16}

    @property
    def group(self) -> tuple[Any, ...]:
        """The key of the form that the case belongs to: element types and `extra`."""
        return tuple(sorted(self.types.items())), tuple(sorted(self.extra.items()))

    @property
    def rank(self) -> int:
        """The highest rank of operands and results with type variable T, which the rank limits of forms refer to."""
        ranks = [a.ndim for a, p in self._bound() if p.variable == "T"]
        return max(ranks, default=0)

    def _bound(self) -> Iterator[tuple[Array, Parameter]]:
        known = entry(self.op)
        for arrays, parameters in ((self.operands, known.operands), (self.expected, known.results)):
            for index, array in enumerate(arrays):
                if array is not None:
                    yield array, parameters[min(index, len(parameters) - 1)]

    def inputs(self) -> list[Array]:
        """The operands that are inputs of the model."""
        left_out = self.constants | self.states
        found = [a for i, a in enumerate(self.operands) if a is not None and i not in left_out]
        return [a.astype(np.int32) if self.wide and a.dtype == np.int16 else a for a in found]

    def model(self) -> bytes:
        """The model as a .tflite file; the op version is that of the op table."""
        graph = Graph()
        operands, results = self._values(graph)
        version = TfliteTarget().op_version(Form(self.op, tuple(operands), self.options), results)
        node = graph.insert(Node(foreign_op("tfl", self.op, version), operands, self.options))
        made = [node.add_result(value.type, f"y{i}") for i, value in enumerate(results)]
        graph.outputs = [_cast(graph, y, DType.INT32) if self._is_widened(y.tensor_type) else y for y in made]
        file = io.BytesIO()
        write(Model(graph), file)
        return file.getvalue()

    def instance(self) -> OpInstance:
        """The op as targets see it."""
        return OpInstance(entry(self.op), *self._values(Graph()), self.options)

    def _values(self, graph: Graph) -> tuple[list[Value | None], list[Value]]:
        operands = [self._operand(graph, i, array) for i, array in enumerate(self.operands)]
        return operands, [Value(self._type(array, side="results", index=i)) for i, array in enumerate(self.expected)]

    def _operand(self, graph: Graph, index: int, array: Array | None) -> Value | None:
        if array is None:
            return None
        type_ = self._type(array, side="operands", index=index)
        if self.open and index not in self.constants:
            type_ = replace(type_, shape=tuple(size or fresh_symbol() for size in array.shape))
        if index in self.states:
            state = Value(type_, f"state{index}")
            graph.states.append(State(state, state))
            return state
        if index not in self.constants:
            wide = replace(type_, dtype=DType.INT32) if self._is_widened(type_) else type_
            given = graph.add_input(wide, f"x{index}")
            return given if wide == type_ else _cast(graph, given, type_.dtype)
        value = constant(array, dtype_of(array.dtype))
        value.type = type_
        return value

    def _is_widened(self, type_: TensorType) -> bool:
        return self.wide and type_.dtype is DType.INT16

    def _type(self, array: Array, side: str, index: int) -> TensorType:
        quantization = self.quantizations.get((side, index))
        dtype = DType.FLOAT32 if quantization else dtype_of(array.dtype)
        shape = tuple(fresh_symbol() for _ in array.shape) if self.dynamic and side == "results" else array.shape
        return TensorType(dtype, shape, quantization)


def _cast(graph: Graph, value: Value, dtype: DType) -> Value:
    types = {"in_data_type": value.dtype.name, "out_data_type": dtype.name}
    node = graph.insert(Node(foreign_op("tfl", "CAST", 1), [value], types))
    return node.add_result(replace(value.tensor_type, dtype=dtype))


def evaluated(
    op: str, types: Mapping[str, str], operands: Sequence[Array | None], evaluate: Evaluate, **fields: Any
) -> Case:
    """A case whose expected results are `evaluate` of the operands."""
    return Case(op, types, operands, evaluate(*operands), evaluate=evaluate, **fields)


def draw(element: str, shape: Sequence[int], *, seed: str = "", low: float = -4, high: float = 4) -> Array:
    """Random values of an element type: floats in [low, high), integers in two thirds of their range, short strings."""
    rng = np.random.default_rng(zlib.crc32(f"{element} {tuple(shape)} {seed}".encode()))
    if element == "string":
        texts = [b"abcdefgh"[: 1 + i % 7] + b"%d" % i for i in rng.integers(0, 50, int(np.prod(shape)))]
        array = np.empty(len(texts), dtype=object)
        array[:] = texts
        return array.reshape(shape)
    dtype = DType(element).numpy
    if element == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if element.startswith("complex"):
        return (rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(dtype)
    if element in INTEGERS:
        bounds, largest = np.iinfo(dtype), _LARGEST.get()
        low_, high_ = max(bounds.min // 3, -largest), min(bounds.max // 3, largest)
        return rng.integers(low_, high_, shape, dtype=dtype, endpoint=True)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def draw_small(element: str, shape: Sequence[int], *, seed: str = "", low: int = -5, high: int = 5) -> Array:
    """Random integers in [low, high], from 0 for unsigned types."""
    rng = np.random.default_rng(zlib.crc32(f"small {element} {tuple(shape)} {seed}".encode()))
    floor = 0 if element.startswith("u") or element == "bool" else low
    return np.asarray(rng.integers(floor, high, shape, endpoint=True)).astype(DType(element).numpy)


_FIRST: ContextVar[int] = ContextVar("first", default=2)
_LARGEST: ContextVar[int] = ContextVar("largest", default=1 << 64)


@contextlib.contextmanager
def batches_of(size: int, largest: int) -> Iterator[None]:
    """The first axis of shapes of several axes has this size, and integers are at most `largest`."""
    tokens = _FIRST.set(size), _LARGEST.set(largest)
    try:
        yield
    finally:
        _FIRST.reset(tokens[0])
        _LARGEST.reset(tokens[1])


def sizes(rank: int) -> tuple[int, ...]:
    """A shape of this rank without sizes of 1, except for the first of several axes within `batches_of(1)`."""
    return ((_FIRST.get() if rank > 1 else 2), 3, 2, 3, 2, 2, 2, 2)[:rank]


def int32(values: Any) -> Array:
    """An int32 array."""
    return np.asarray(values, np.int32)
