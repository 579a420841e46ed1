"""The record of a conversion: the source tensor of each target tensor, and the origin of each target op.

Per-layer checks and reports use it. It can be written as JSON and read back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, field
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dims import Shape, with_texts
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """target = transpose(reshape(source, `shape`), `permutation`); None: no reshape, no transpose.

    Axis i of the target is axis permutation[i] of the reshaped source. Symbolic sizes are strings. `quantization`:
    that of the target in the text form, None where it is not quantized.
    """

    source: str
    target: str
    permutation: tuple[int, ...] | None = None
    shape: tuple[int | str, ...] | None = None
    quantization: str | None = None


@dataclass(frozen=True, slots=True)
class OpEntry:
    """The target op that produces the tensor `target`.

    `sources`: the source nodes that it replaces (their names, or those of their first results). `made_by`: the rules
    and passes that created it, in order.
    """

    target: str
    op: str
    sources: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Record:
    """All tensors of the source that still exist, and all ops of the target, regions included."""

    tensors: tuple[TensorEntry, ...] = field(default_factory=tuple)
    ops: tuple[OpEntry, ...] = field(default_factory=tuple)

    def to_json(self) -> str:
        """The record as JSON; fields with their default value are left out."""

        def fields(entry: TensorEntry | OpEntry) -> dict[str, Any]:
            return {key: value for key, value in asdict(entry).items() if value not in (None, ())}

        return json.dumps({"tensors": [fields(t) for t in self.tensors], "ops": [fields(o) for o in self.ops]})

    @classmethod
    def from_json(cls, text: str) -> Record:
        """The record that :meth:`to_json` wrote. Raises ValueError for other text."""
        try:
            content = json.loads(text)
            tensors = tuple(TensorEntry(**_tuples(entry)) for entry in content["tensors"])
            return cls(tensors, tuple(OpEntry(**_tuples(entry)) for entry in content["ops"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not the record of a conversion: {error}") from error


def record_of(graph: Graph, names: Mapping[Value, str]) -> Record:
    """The record of a converted graph; `names`: the written name of each value, others are left out."""
    tensors = [entry for value in _values(graph) if value in names for entry in _entries(value, names[value])]
    ops = [_op_entry(node, names) for node in graph.walk()]
    return Record(tuple(dict.fromkeys(tensors)), tuple(ops))


def _values(graph: Graph) -> Iterator[Value]:
    """Inputs, results and constants, those of regions too."""
    yield from graph.inputs
    for node in graph.walk():
        yield from (v for v in node.present_operands if v.is_constant)
        yield from node.results
        for region in node.regions:
            yield from region.inputs
    yield from (v for v in graph.outputs if v.is_constant)


def _entries(value: Value, name: str) -> Iterator[TensorEntry]:
    type_ = value.type
    quantization = str(type_.quantization) if isinstance(type_, TensorType) and type_.quantization else None
    for origin in value.origins:
        yield TensorEntry(origin.tensor, name, origin.permutation, _sizes(origin), quantization)


def _sizes(origin: Origin) -> tuple[int | str, ...] | None:
    shape: Shape | None = origin.shape
    return None if shape is None else with_texts(shape)


def _op_entry(node: Node, names: Mapping[Value, str]) -> OpEntry:
    target = next((names[r] for r in node.results if r in names), "")
    return OpEntry(target, node.op.name_in_file, node.sources, node.made_by)


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
