"""Draws ONNX graphs of any op, dtype, rank and size: each node is run in ONNX Runtime when it is added.

So the graph is valid for the arrays of one run, and each value is known while the graph grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.harness.litert import Array, run_onnx

Dims = tuple[int | str, ...]
FLOATS = ("float32",) * 10 + ("float16", "float64")
INTEGERS = ("int64",) * 4 + ("int32",) * 4 + ("int8", "uint8", "int16", "uint16", "uint32", "uint64")
NUMBERS = FLOATS * 2 + INTEGERS
ALL = (*NUMBERS, "bool", "bool", "bool")
_RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5)
_SIZES = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8)
_LARGEST = 1 << 13
"""Most elements of a value."""
_FAR = 1e5
"""Largest float."""


@dataclass(frozen=True)
class Input:
    """A model input: element type, dims (a name for an open one, "" for one without a name), range of its elements."""

    dtype: str
    dims: Dims
    low: float
    high: float

    def draw(self, random: np.random.Generator, shape: Sequence[int]) -> Array:
        """Elements for this shape: floats that are exact in 16 bits, some of them equal."""
        if self.dtype == "bool":
            return np.asarray(random.integers(0, 2, shape)).astype(bool)
        if self.dtype.startswith("float"):
            found = np.round(random.uniform(self.low, self.high, tuple(shape)) * 64) / 64
            return np.asarray(found).astype(self.dtype)
        return np.asarray(random.integers(int(self.low), int(self.high) + 1, tuple(shape))).astype(self.dtype)


@dataclass
class Drawing:
    """A graph under construction. ``arrays``: each value in one run. ``open``: the share of open dims of inputs."""

    seed: int
    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, onnx.TensorProto] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.opset = self.choose((13, 15, 16, 17, 17, 18, 19, 20, 21, 22, 23, 24))
        self.open = self.choose((0.0, 0.0, 0.3, 0.6, 1.0))
        self.empty = self.below(10) == 0

    def below(self, limit: int) -> int:
        """A random integer in [0, limit)."""
        return int(self.random.integers(limit))

    def chance(self, share: float) -> bool:
        """True in this share of the cases."""
        return bool(self.random.random() < share)

    def choose(self, options: Sequence[Any]) -> Any:
        """A random one of the options."""
        return options[self.below(len(options))]

    def array(self, name: str) -> Array:
        """The elements of a value."""
        return self.arrays[name]

    def rank(self, name: str) -> int:
        """The rank of a value."""
        return self.arrays[name].ndim

    def axis(self, name: str) -> int:
        """An axis of a value, negative half of the time."""
        rank = self.rank(name)
        return self.below(rank) - rank * self.below(2)

    def size(self) -> int:
        """A size: in a tenth of the graphs also 0."""
        return 0 if self.empty and self.chance(0.15) else int(self.choose(_SIZES))

    def shape(self, ranks: Sequence[int] = ()) -> tuple[int, ...]:
        """A shape of one of these ranks (without ranks: of 0 to 5)."""
        return tuple(self.size() for _ in range(self.choose(ranks or _RANKS)))

    def value(
        self,
        dtypes: Sequence[str] = ("float32",),
        ranks: Sequence[int] = (),
        fits: Callable[[Array], bool] = lambda _: True,
        shape: Sequence[int] | None = None,
    ) -> str:
        """A value with one of these dtypes and ranks (or this shape): one that exists, or a new one."""
        dtype = self.choose(dtypes)
        same = [n for n, a in self.arrays.items() if a.dtype == dtype and fits(a)]
        if shape is not None:
            same = [n for n in same if self.arrays[n].shape == tuple(shape)]
        elif ranks:
            same = [n for n in same if self.arrays[n].ndim in ranks]
        if same and self.chance(0.85):
            return str(same[max(self.below(len(same)) for _ in range(2))])
        return self.new(dtype, self.shape(ranks) if shape is None else shape)

    def weight(self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4) -> str:
        """A new initializer, or in some cases an input without open dims."""
        if self.chance(0.75) or len(self.inputs) > 4:
            return self.constant(Input(dtype, (), low, high).draw(self.random, shape))
        name = f"in{len(self.inputs)}"
        self.inputs[name] = Input(dtype, tuple(shape), low, high)
        self.arrays[name] = self.inputs[name].draw(self.random, shape)
        return name

    def new(self, dtype: str, shape: Sequence[int], low: float = -4, high: float = 4) -> str:
        """A new input, or in a quarter of the cases an initializer."""
        low = max(low, 0) if dtype.startswith("uint") else low
        if self.chance(0.25) or len(self.inputs) > 4:
            return self.constant(Input(dtype, (), low, high).draw(self.random, shape))
        name = f"in{len(self.inputs)}"
        self.inputs[name] = Input(dtype, tuple(self._dim(size) for size in shape), low, high)
        self.arrays[name] = self.inputs[name].draw(self.random, shape)
        return name

    def _dim(self, size: int) -> int | str:
        """The size, or an open dim of this size: one that other inputs have as well, or a new one."""
        if not self.chance(self.open):
            return size
        same = [name for name, known in self.sizes.items() if known == size and name[0] == "N"]
        if same and self.chance(0.6):
            return str(self.choose(same))
        name = f"{'N' if self.chance(0.6) else '?'}{len(self.sizes)}"
        self.sizes[name] = size
        return name

    def constant(self, elements: Any, dtype: Any = None) -> str:
        """A new initializer."""
        name = f"w{len(self.weights)}"
        self.arrays[name] = np.asarray(elements, dtype)
        self.weights[name] = numpy_helper.from_array(self.arrays[name], name)
        return name

    def given(self, elements: Any, dtype: Any = np.int64) -> str:
        """A constant; in a few cases an input that has these elements' range."""
        array = np.asarray(elements, dtype)
        if array.size and self.chance(0.08) and len(self.inputs) < 5:
            name = f"in{len(self.inputs)}"
            self.inputs[name] = Input(str(array.dtype), array.shape, float(array.min()), float(array.max()))
            self.arrays[name] = array
            return name
        return self.constant(array)

    def partner(self, name: str, dtype: str = "") -> str:
        """A value whose shape broadcasts with that of ``name``, of the same dtype by default."""
        array = self.arrays[name]
        dtype = dtype or str(array.dtype)
        if self.chance(0.4):
            return self.value((dtype,), fits=lambda other: broadcasts(array, other))
        sizes = [1 if self.chance(0.25) else size for size in array.shape]
        return self.new(dtype, sizes[self.below(len(sizes) + 1) if self.chance(0.3) else 0 :])

    def node(self, op: str, inputs: Sequence[str], results: int = 1, domain: str = "", **attributes: Any) -> list[str]:
        """Add a node; the names of its results, none where ONNX Runtime refuses it or elements are too large."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(results)]
        made = helper.make_node(op, inputs, names, f"n{len(self.nodes)}", domain=domain, **attributes)
        found = self._run(made)
        if not found or not all(_is_small(a) for a in found.values()):
            return []
        self.nodes.append(made)
        self.arrays |= found
        return names

    def _run(self, node: onnx.NodeProto) -> dict[str, Array]:
        """The results of a node; none where it does not run."""
        fed = {name: self.arrays[name] for name in node.input if name}
        kept = [self.weights[name] for name in fed if name in self.weights]
        inputs = [info(n, a.dtype, a.shape) for n, a in fed.items() if n not in self.weights]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
        model = self._model([node], inputs, outputs, kept)
        try:
            return run_onnx(model.SerializeToString(), {n: a for n, a in fed.items() if n not in self.weights})
        except Exception:
            return {}

    def model(self) -> onnx.ModelProto:
        """The model; its outputs are the values without uses, and a few others."""
        used = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output]
        kept = [name for i, name in enumerate(made) if name not in used or (self.seed + i) % 7 == 0]
        outputs = [onnx.ValueInfoProto(name=name) for name in kept]
        inputs = [
            info(n, np.dtype(v.dtype), [d if isinstance(d, int) or d[0] == "N" else None for d in v.dims])
            for n, v in self.inputs.items()
            if n in used
        ]
        weights = [t for n, t in self.weights.items() if n in used]
        return self._model(self.nodes, inputs, outputs, weights)

    def _model(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        weights: Sequence[onnx.TensorProto],
    ) -> onnx.ModelProto:
        graph = helper.make_graph(list(nodes), "random", list(inputs), list(outputs), list(weights))
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def feeds(self, sizes: dict[str, int], seed: int) -> dict[str, Array]:
        """Other inputs, with these sizes of the open dims."""
        random = np.random.default_rng([self.seed, seed])
        used = {name for node in self.nodes for name in node.input}
        return {
            name: input_.draw(random, [sizes[d] if isinstance(d, str) else d for d in input_.dims])
            for name, input_ in self.inputs.items()
            if name in used
        }


def info(name: str, dtype: np.dtype[Any], dims: Sequence[Any]) -> onnx.ValueInfoProto:
    """The declaration of a value."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), dims)


def broadcasts(*arrays: Array) -> bool:
    """Whether the shapes broadcast."""
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        return False
    return True


def _is_small(array: Any) -> bool:
    if not isinstance(array, np.ndarray) or math.prod(array.shape) > _LARGEST or array.ndim > 6:
        return False
    return array.dtype.kind != "f" or bool(np.isfinite(array).all() and np.abs(array).max(initial=0.0) < _FAR)
