"""Draws TFLite graphs of any builtin op, dtype, rank and size: each op is run in LiteRT when it is added.

So the graph is valid for the arrays of one run. An op that LiteRT refuses is not added; one that ends the process ends
the case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.encode import Encoder
from onnxtfl.targets.table import entry
from tests.fuzz.drawing import Input, Values, is_small
from tests.harness.litert import Array, run_tflite

Kinds = Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class Op:
    """An op: the names of its operands ("" for one that is absent) and results, and its options."""

    name: str
    inputs: Sequence[str]
    results: Sequence[str]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Scale:
    """Quantization parameters: of the tensor, or of each index of an axis."""

    scales: tuple[float, ...]
    zero_points: tuple[int, ...] = (0,)
    axis: int = 0

    def real(self, stored: Array) -> Array:
        """The real values of stored ones, in float32."""
        shape = [len(self.scales) if i == self.axis and len(self.scales) > 1 else 1 for i in range(stored.ndim)]
        scales, zeros = (np.reshape(np.asarray(v, np.float64), shape) for v in (self.scales, self.zero_points))
        return np.asarray((stored - zeros) * scales, np.float32).reshape(stored.shape)


@dataclass
class TfliteDrawing(Values):
    """A graph under construction. ``quantized``: values with quantization."""

    ops: list[Op] = field(default_factory=list)
    constants: set[str] = field(default_factory=set)
    quantized: dict[str, Scale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rankless = self.below(12) == 0

    def keep(self, name: str) -> None:
        """Let a value be a constant."""
        self.constants.add(name)

    def used(self) -> Iterable[str]:
        """The names that ops read."""
        return (name for op in self.ops for name in op.inputs)

    def choice(self, *options: Any, dtype: str = "int32", share: float = 0.2) -> str:
        """The first of these arrays, as a constant, or in this share of the cases an input that may be any of them."""
        arrays = tuple(np.asarray(option, dtype) for option in options)
        if len(self.inputs) > 4 or not self.chance(share):
            return self.constant(arrays[0])
        name = f"in{len(self.inputs)}"
        self.inputs[name] = Input(dtype, arrays[0].shape, 0, 0, tuple(a for a in arrays if a.shape == arrays[0].shape))
        self.arrays[name] = arrays[0]
        return name

    def op(self, name: str, inputs: Sequence[str], *dtypes: str, rank: int = 0, **options: Any) -> list[str]:
        """Add an op; the names of its results, none where LiteRT refuses it or elements are too large.

        ``dtypes``: of the results; the first operand's by default. ``rank``: what kernels read from the file's shape.
        """
        types = dtypes or (str(self.arrays[inputs[0]].dtype),)
        made = Op(name, tuple(inputs), [f"v{len(self.ops)}_{i}" for i in range(len(types))], options)
        found = self.results(made, {n: (t, rank) for n, t in zip(made.results, types, strict=True)})
        if not found or not all(is_small(a) for a in found.values()):
            return []
        self.ops.append(made)
        self.rankless &= not rank
        self.arrays |= found
        return list(made.results)

    def results(self, made: Op, kinds: Kinds) -> dict[str, Array]:
        """The results of an op on the present arrays; none where it does not run."""
        fed = {n: self.arrays[n] for n in made.inputs if n and n not in self.constants}
        data = self._file([made], fed, list(made.results), kinds)
        try:
            return {n: np.asarray(a) for n, a in run_tflite(data, fed, kernels="builtin")}
        except (RuntimeError, ValueError):
            return {}

    def model(self, every: bool = False) -> bytes:
        """The file; its outputs are the values without uses, and a few others, or ``every`` value."""
        used = set(self.used())
        made = [name for op in self.ops for name in op.results]
        kept = [name for i, name in enumerate(made) if every or name not in used or (self.seed + i) % 7 == 0]
        return self._file(self.ops, [n for n in self.inputs if n in used], kept, {})

    def _file(self, ops: Sequence[Op], inputs: Iterable[str], outputs: list[str], types: Kinds) -> bytes:
        """The file of some ops. ``types``: dtypes and ranks of values that are not known yet."""
        names = list(dict.fromkeys([n for op in ops for n in (*op.inputs, *op.results) if n]))
        index = {name: i for i, name in enumerate(names)}
        codes = list(dict.fromkeys(op.name for op in ops))
        buffers = [b"", *(self.arrays[n].tobytes() for n in names if n in self.constants)]
        places = {n: 1 + i for i, n in enumerate(n for n in names if n in self.constants)}
        graph = {
            "tensors": [self._tensor(n, places.get(n, 0), types.get(n)) for n in names],
            "inputs": [index[n] for n in inputs],
            "outputs": [index[n] for n in outputs],
            "operators": [_operator(op, codes.index(op.name), index) for op in ops],
        }
        model = {
            "version": 3,
            "operator_codes": [_code(name) for name in codes],
            "subgraphs": [graph],
            "buffers": [{"data": data} if data else {} for data in buffers],
        }
        encoder = Encoder()
        encoder.root(schema.table("Model"), model, b"TFL3")
        return bytes(encoder.out)

    def _tensor(self, name: str, buffer: int, kind: tuple[str, int] | None) -> dict[str, Any]:
        """The table of a tensor. ``kind``: dtype and rank of a value that is not known yet."""
        found: dict[str, Any] = {"name": name, "type": (kind[0] if kind else str(self.arrays[name].dtype)).upper()}
        if name in self.quantized:
            scale = self.quantized[name]
            found["quantization"] = {
                "scale": scale.scales, "zero_point": scale.zero_points, "quantized_dimension": scale.axis
            }  # fmt: skip
        if kind:
            return found | {"shape": [1] * kind[1]}
        array = self.arrays[name]
        dims = self.inputs[name].dims if name in self.inputs else [-1] * array.ndim
        if name in self.constants or not (name in self.inputs or self.is_dynamic()):
            dims = array.shape
        if name[0] == "v" and self.rankless:
            return found
        signature = [d if isinstance(d, int) else -1 for d in dims]
        shape = [self.sizes[d] if d in self.fixed else d if isinstance(d, int) and d >= 0 else 1 for d in dims]
        found |= {"shape": array.shape, "has_rank": array.ndim == 0}
        if -1 in signature:
            found |= {"shape": shape, "shape_signature": signature}
        return found | {"buffer": buffer}

    def is_dynamic(self) -> bool:
        """Whether shapes may depend on the inputs."""
        return bool(self.sizes) or any(found.among for found in self.inputs.values())

    def text(self, *outputs: str) -> str:
        """The graph, or what these values of it depend on, in one line for each op, input and constant."""
        wanted, lines = set(outputs or [n for op in self.ops for n in op.results]), []
        for op in reversed(self.ops):
            if wanted & set(op.results):
                wanted |= set(op.inputs)
                options = ", ".join(f"{key}={value}" for key, value in op.options.items())
                results = ", ".join(f"{n}: {self._type(n)}" for n in op.results)
                lines.append(f"{results} = {op.name}({', '.join(op.inputs)}) {options}")
        inputs = [f"{n}: {v.dtype}{list(v.dims)}{self._scale(n)}" for n, v in self.inputs.items() if n in wanted]
        kept = [f"{n} = {self._type(n)} {self._elements(n)}" for n in sorted(self.constants & wanted)]
        return "\n".join([*inputs, *kept, *reversed(lines)])

    def _type(self, name: str) -> str:
        array = self.arrays[name]
        return f"{array.dtype}{list(array.shape)}{self._scale(name)}"

    def _scale(self, name: str) -> str:
        found = self.quantized.get(name)
        return f" {found}" if found else ""

    def _elements(self, name: str) -> Any:
        return self.arrays[name].tolist() if self.arrays[name].size <= 12 else ""


def _code(name: str) -> dict[str, Any]:
    code, versions = schema.builtin_code(name), entry(name).versions
    version = min((v.number for v in versions), default=1)
    return {"builtin_code": code, "deprecated_builtin_code": min(code, 127), "version": version}


def _operator(op: Op, code: int, index: Mapping[str, int]) -> dict[str, Any]:
    places = [index[n] if n else -1 for n in op.inputs]
    found: dict[str, Any] = {"opcode_index": code, "inputs": places, "outputs": [index[n] for n in op.results]}
    table = schema.options_table(op.name)
    if table is not None:
        union, number = schema.options_union(table.name)
        found |= {union: (table, op.options), f"{union}_type": number}
    return found
