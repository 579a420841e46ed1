"""The tensors inside of a model, as its runtime computes them: through parts that are cut from the model.

Memory is bounded by the tensors requested at a time; weights stay in the model's file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxtfl.errors import OnnxtflError
from onnxtfl.formats import files
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Symbol, evaluate, symbol, symbols
from onnxtfl.ir.dtypes import dtype_of
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.model import FormatName, Model
from onnxtfl.ir.types import TensorType, Type, rank_of, shape_of
from onnxtfl.passes.canonical.dead_code import remove_unreached
from onnxtfl.passes.canonical.inline import inline_functions
from onnxtfl.runtimes import RunError, RunOptions, Worker
from onnxtfl.tracing.parts import types_of

_UNKNOWN_SIZE = 8
"""The expected size of a dimension that depends on more than the inputs."""
_UNKNOWN_BYTES = 1 << 20
"""The expected size of a tensor of unknown shape."""
_MOST_FAILURES = 24
"""The most parts that may fail before no more parts are tried."""


@dataclass
class InnerModel:
    """A model whose tensors have the number of their value among `values`: inputs, then results of the main graph.

    `given`: the values of the inputs. `folder`: where parts are written. `failures`: of parts that did not run.
    """

    path: Path
    format: FormatName
    worker: Worker
    given: Sequence[Any]
    options: RunOptions
    folder: Path
    failures: list[str] = field(default_factory=list)
    _files: itertools.count[int] = field(default_factory=itertools.count)

    @cached_property
    def graph(self) -> Graph:
        """The main graph, functions inlined."""
        return self.read().main

    @cached_property
    def values(self) -> list[Value]:
        """All inputs and results."""
        return numbered(self.graph)

    @cached_property
    def number(self) -> dict[Value, int]:
        """The number of each value."""
        return {value: i for i, value in enumerate(self.values)}

    @cached_property
    def by_name(self) -> dict[str, int]:
        """The number of each tensor that has a name."""
        return {value.name: i for i, value in enumerate(self.values) if value.name}

    @cached_property
    def changing(self) -> frozenset[int]:
        """The numbers of the results that depend on an input or a state; others are computed once, when loading."""
        found = {*self.graph.inputs, *(state.input for state in self.graph.states)}
        for node in self.graph.nodes:
            if any(v in found for v in node.present_operands):
                found.update(node.results)
        return frozenset(self.number[v] for v in found if v in self.number and v.producer is not None)

    @cached_property
    def _types(self) -> dict[str, Type]:
        return types_of(self.path, {})

    def type_of(self, number: int) -> Type | None:
        """The type of a tensor, inferred where the file does not have it."""
        value = self.values[number]
        return value.type if value.type is not None else self._types.get(value.name or "")

    def rank(self, number: int) -> int | None:
        """The rank of a tensor by its type, None where it is unknown."""
        return rank_of(self.type_of(number))

    def nbytes(self, number: int) -> int:
        """The expected bytes of a tensor, with the sizes of the given inputs."""
        type_ = self.type_of(number)
        if not isinstance(type_, TensorType) or type_.shape is None:
            return _UNKNOWN_BYTES
        sizes = [evaluate(d, self._sizes, _UNKNOWN_SIZE) for d in type_.shape]
        return max(0, math.prod(sizes)) * max(1, type_.storage.bits // 8)

    @cached_property
    def _sizes(self) -> dict[Symbol, int]:
        """The sizes of the given inputs by their symbols."""
        found = dict[Symbol, int]()
        for value, array in zip(self.graph.inputs, self.given, strict=False):
            sizes = array.shape if isinstance(array, np.ndarray) else ()
            for dim, size in zip(shape_of(value.type) or (), sizes, strict=False):
                found |= {name: size for name in symbols(dim) if dim == symbol(name)}
        return found

    def fetch(self, wanted: Collection[int]) -> dict[int, Array]:
        """The values of tensors, without those that the runtime cannot compute."""
        return self.isolated({}, wanted)

    def isolated(self, fed: Mapping[int, Array], wanted: Collection[int]) -> dict[int, Array]:
        """The values of the tensors `wanted` if ops read the arrays in `fed` instead of these tensors.

        Tensors that the runtime cannot compute are left out.
        """
        inputs = {v: self.given[i] for i, v in enumerate(self.graph.inputs)}
        found = {i: inputs[self.values[i]] for i in wanted if self.values[i] in inputs}
        return found | self._run(fed, [i for i in sorted(set(wanted)) if i not in found])

    def _run(self, fed: Mapping[int, Array], wanted: Sequence[int]) -> dict[int, Array]:
        """Run a part; if it fails, its halves, until too many parts have failed."""
        found, pending, failures = dict[int, Array](), [list(wanted)], 0
        while pending and failures <= _MOST_FAILURES:
            part = pending.pop()
            try:
                found |= self._run_part(fed, part) if part else {}
            except OnnxtflError as error:
                failures += 1
                self.failures.append(str(error))
                if isinstance(error, RunError) and error.kind == "timeout":
                    break
                half = len(part) // 2
                pending += [part[half:], part[:half]] if half else []
        return found

    def fetch_over(self, wanted: Sequence[int], sets: Sequence[Sequence[Any]]) -> list[dict[int, Array]]:
        """The values of tensors for each of several sets of inputs: one part is cut for all. Raises `OnnxtflError`."""
        inputs = [i for i in wanted if self.values[i].producer is None]
        results = [i for i in wanted if self.values[i].producer is not None]
        runs: list[list[Any]] = [[] for _ in sets]
        if results:
            with self._part({}, results) as (path, _):
                runs = self.worker.submit(path, sets, self.options).result()
        at = {i: self.graph.inputs.index(self.values[i]) for i in inputs}
        return [
            dict(zip(results, outputs, strict=True)) | {i: given[at[i]] for i in inputs}
            for outputs, given in zip(runs, sets, strict=True)
        ]

    def _run_part(self, fed: Mapping[int, Array], wanted: Sequence[int]) -> dict[int, Array]:
        """The values of `wanted`, on other kernels if the default ones refuse the part."""
        with self._part(fed, wanted) as (path, arrays):
            outputs = self._outputs(path, [*self.given, *arrays])
        return {i: array for i, array in zip(wanted, outputs, strict=True) if isinstance(array, np.ndarray)}

    @contextmanager
    def _part(self, fed: Mapping[int, Array], wanted: Sequence[int]) -> Iterator[tuple[Path, list[Array]]]:
        """The file of the part that computes `wanted`, and the tensors that it reads beside the inputs."""
        model = self.read()
        values = numbered(model.main)
        for i in wanted:
            if values[i].type is None:
                values[i].type = self.type_of(i)
        arrays = isolate(model, {values[i]: array for i, array in fed.items()}, [values[i] for i in wanted])
        path = files.write(model, self.folder / f"{next(self._files)}.{self.format}")
        try:
            yield path, arrays
        finally:
            path.unlink(missing_ok=True)
            path.with_name(path.name + ".data").unlink(missing_ok=True)

    def _outputs(self, path: Path, inputs: Sequence[Any]) -> list[Any]:
        try:
            return self.worker.run(path, inputs, self.options)
        except RunError as error:
            if error.kind in ("timeout", "memory"):
                raise
            other = "builtin" if self.options.kernels == "default" else "default"
            return self.worker.run(path, inputs, replace(self.options, kernels=other))

    def read(self) -> Model:
        """A new copy of the model, functions inlined."""
        model = files.read(self.path)
        inline_functions(model)
        return model

    def between(self, number: int, stops: Collection[int]) -> tuple[list[Node], list[int]]:
        """The nodes that compute a tensor from those of `stops` and the inputs, in order; and which of these they read.

        Nodes that depend on constants only are left out.
        """
        nodes, read = dict[Node, None](), dict[int, None]()
        pending = [self.values[number].producer]
        while pending:
            node = pending.pop()
            if node is None or node in nodes:
                continue
            nodes[node] = None
            for i in (self.number[v] for v in node.present_operands if v in self.number):
                if i in stops or self.values[i].producer is None:
                    read[i] = None
                elif i in self.changing:
                    pending.append(self.values[i].producer)
        return sorted(nodes, key=self._position), sorted(read)

    def _position(self, node: Node) -> int:
        return min((self.number[r] for r in node.results if r in self.number), default=0)


def numbered(graph: Graph) -> list[Value]:
    """The values of a graph in the order of their numbers."""
    return [*graph.inputs, *(result for node in graph.nodes for result in node.results)]


def isolate(model: Model, fed: Mapping[Value, Array], wanted: Sequence[Value]) -> list[Array]:
    """Make `wanted` the outputs, computed from new inputs instead of `fed`. Returns the values of the new inputs."""
    graph, arrays = model.main, list[Array]()
    for k, (value, array) in enumerate(fed.items()):
        if value.uses:
            value.replace_uses(graph.add_input(_type_as_fed(value.type, array), f"value_{k}"))
            arrays.append(array)
    graph.outputs, graph.output_names = list(wanted), [f"result_{k}" for k in range(len(wanted))]
    graph.states = [state for state in graph.states if state.input.uses]
    remove_unreached(graph, set())
    own = len(graph.inputs) - len(arrays)
    kept = [i for i in range(len(arrays)) if graph.inputs[own + i].uses]
    graph.inputs = [*graph.inputs[:own], *(graph.inputs[own + i] for i in kept)]
    model.signatures, model.subgraphs = [], []
    return [arrays[i] for i in kept]


def _type_as_fed(type_: Type | None, array: Array) -> TensorType:
    if isinstance(type_, TensorType):
        return replace(type_, shape=tuple(array.shape))
    return TensorType(dtype_of(array.dtype), tuple(array.shape))
