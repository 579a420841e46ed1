"""The operations of the neutral graph's document, in its order: our op for each, and a worked example.

The names and the examples are data (``schemas/neutral_ops.toml``); what an op means is in its class.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from onnxtfl.ir import interpret
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.op import OPS, Op
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import TensorType

CONSTANT = "Constant"
"""The document's op for which we have values with data instead of an op."""
_STATEMENT = re.compile(r"^(%[\w., %]+?) = ", re.MULTILINE)


@dataclass(frozen=True)
class DocumentedOp:
    """An operation of the document. `number`: its section (3.number); `op`: None for Constant.

    `document`: the example in the document's form, "" if that is ours. `differs`: what differs from the document in
    meaning, "" if nothing does.
    """

    number: int
    name: str
    op: type[Op] | None
    inputs: Mapping[str, str]
    text: str
    document: str
    differs: str

    def graph(self, documented: bool = False) -> Graph:
        """Return a new graph of the example; its outputs are the results of the last statement.

        `documented`: of the example in the document's form.
        """
        text = self.document if documented else self.text
        names = ", ".join(f"%{name}: {type_.split(' ', 1)[0]}" for name, type_ in self.inputs.items())
        outputs = _STATEMENT.findall(text)[-1]
        return parse_graph(f"graph {self.name}({names}) -> ({outputs}) {{\n{text}\n}}")

    def arrays(self) -> list[Array]:
        """Return the inputs of the example."""
        return [_elements(text) for text in self.inputs.values()]

    def results(self) -> list[Array] | None:
        """Return the evaluated outputs of the example; None for an op that is never evaluated."""
        try:
            return interpret.run(self.graph(), self.arrays())
        except NotImplementedError:
            return None

    @property
    def is_evaluated(self) -> bool:
        """Whether the op has NumPy semantics."""
        return self.results() is not None


def _elements(text: str) -> Array:
    """Return the elements of a constant in the text form."""
    (value,) = parse_graph(f"graph g() -> (%c) {{\n%c = constant {text}\n}}").outputs
    assert isinstance(value.type, TensorType)
    return value.stored()


@functools.cache
def documented_ops() -> tuple[DocumentedOp, ...]:
    """Return all operations of the document, in its order."""
    text = importlib.resources.files("onnxtfl.schemas").joinpath("neutral_ops.toml").read_text(encoding="utf-8")
    ours = {op.documented: op for op in OPS.values() if op.documented}
    found = []
    for number, (name, entry) in enumerate(tomllib.loads(text).items(), 1):
        inputs = dict(line.removeprefix("%").split(": ", 1) for line in entry["inputs"])
        op = None if name == CONSTANT else ours.get(name) or OPS[name]
        texts = (entry[key].strip() if key in entry else "" for key in ("text", "document", "differs"))
        found.append(DocumentedOp(number, name, op, inputs, *texts))
    return tuple(found)
