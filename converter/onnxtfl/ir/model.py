"""A model file: its graphs, functions, signatures and metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, Protocol

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UsageError, suggestion
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.metadata import Metadata

FormatName = Literal["onnx", "tflite", "ir"]
"""The formats of files; "ir": a neutral graph as text."""
FunctionKey = tuple[str, str, str]
"""Domain, name, overload."""


class Function(Protocol):
    """An op whose body the file defines (an ONNX model-local function)."""

    @property
    def callees(self) -> Mapping[FunctionKey, int]:
        """The number of nodes in the body by op."""
        ...

    @property
    def graph_references(self) -> int:
        """How many times the body contains a graph that is an attribute of its call."""
        ...

    def body(self, call: Node) -> Graph:
        """The body with the attributes of `call` bound, and one input for each of its operands (also absent ones)."""
        ...


@dataclass(frozen=True, slots=True)
class Signature:
    """An entry point; `inputs` and `outputs`: pairs of name and index among the inputs or outputs of `graph`."""

    key: str
    graph: Graph
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass
class Model:
    """A model; `main` is the graph that runs by default.

    `format`: file format that it was read from, None for a model made in memory. `functions`: ops that the file
    defines. `subgraphs`: other graphs of the file that are not regions of `main`. `signatures`: all entry points, in
    file order. `metadata`: descriptions and entries that have no effect on results. `opsets`: version by ONNX domain.
    `dim_names`: the file's name of a dimension by symbol, if the two differ. `constant_names`: names to write for
    constants without one. `data_files`: paths of the files next to the model that have its external data.
    `map_columns`: for each input that replaces a map, what its elements are.
    """

    main: Graph
    format: FormatName | None = None
    functions: Mapping[FunctionKey, Function] = field(default_factory=dict)
    subgraphs: list[Graph] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    metadata: Metadata = field(default_factory=Metadata)
    opsets: dict[str, int] = field(default_factory=dict)
    dim_names: dict[str, str] = field(default_factory=dict)
    constant_names: Mapping[Value, str] = field(default_factory=dict)
    data_files: tuple[Path, ...] = ()
    map_columns: Mapping[str, str] = field(default_factory=dict)

    def enter(self, key: str) -> None:
        """Make the graph of the signature `key` the main graph, with the names of the signature.

        UsageError if there is none.
        """
        signature = next((s for s in self.signatures if s.key == key), None)
        if signature is None:
            known = [s.key for s in self.signatures]
            raise UsageError(
                f"the model has no signature {key!r}", hint=suggestion(key, known, "its signatures"), code="E-USE-005"
            )
        graph = signature.graph
        for name, i in signature.inputs:
            graph.inputs[i].name = name
        graph.output_names = list(graph.output_names)
        for name, i in signature.outputs:
            graph.output_names[i] = name
        if graph is not self.main:
            self.metadata = self.metadata.of_the_model()
            self.subgraphs = [self.main, *(g for g in self.subgraphs if g is not graph)]
            self.main = graph

    def graphs(self) -> Iterator[Graph]:
        """The main graph and the other subgraphs, without regions."""
        yield self.main
        yield from self.subgraphs
