"""A model file as graphs: what runs, what is called from it, and what the file says beside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import DType

FormatName = Literal["onnx", "tflite"]
FunctionKey = tuple[str, str, str]
"""Domain, name, overload."""


class Function(Protocol):
    """An op that the file defines by others (an ONNX model-local function)."""

    @property
    def callees(self) -> Mapping[FunctionKey, int]:
        """The ops that the body calls, and how often."""
        ...

    def body(self, call: Node) -> Graph:
        """The graph that `call` means: its attributes bound, one input for each operand (absent ones too)."""
        ...


@dataclass(frozen=True, slots=True)
class Signature:
    """An entry point: `inputs` and `outputs` are (name, position among the graph's inputs or outputs)."""

    key: str
    graph: Graph
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Resource:
    """State beside the graphs, found by name: a variable or a lookup table.

    `initial`: the value of a variable, keys and values of a table; None where the file does not set it before run time.
    `dtypes`: of the keys and the values of a table, empty for a variable.
    """

    kind: Literal["variable", "table"]
    name: str
    dtypes: tuple[DType, ...] = ()
    initial: tuple[TensorData, ...] | None = None


@dataclass(frozen=True, slots=True)
class Producer:
    """Who wrote the file, in its own words (ONNX ModelProto; TFLite has none of it)."""

    name: str = ""
    version: str = ""
    domain: str = ""
    model_version: int = 0
    ir_version: int = 0


@dataclass
class Model:
    """A model: `main` is what runs by default.

    `format`: of the file that it was read from, None where it was not read. `functions`: ops that the file defines.
    `subgraphs`: other graphs of the file that no node of `main` holds. `signatures`: all entry points, in the order of
    the file. `resources`: variables and tables that nodes find by name. `description`: the file's documentation.
    `properties`: named text (ONNX) or bytes (TFLite) that the file carries along. `opsets`: versions by ONNX domain.
    `dim_names`: symbol -> the name that the file has for it, where that is no symbol's name.
    """

    main: Graph
    format: FormatName | None = None
    functions: Mapping[FunctionKey, Function] = field(default_factory=dict)
    subgraphs: list[Graph] = field(default_factory=list)
    signatures: list[Signature] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    description: str = ""
    properties: dict[str, str | bytes | TensorData] = field(default_factory=dict)
    opsets: dict[str, int] = field(default_factory=dict)
    producer: Producer = Producer()
    dim_names: dict[str, str] = field(default_factory=dict)

    def graphs(self) -> Iterator[Graph]:
        """The main graph and the other subgraphs, without the regions of their nodes."""
        yield self.main
        yield from self.subgraphs
