"""The coverage of the document's operations: for each, how its worked example is written in both formats, and which ops
of the formats are read as it.

What is written is measured, by converting the example in memory. What is read is found in the mapping rules: the op of
a row, and the ops that the code of other rules names (arithmetic operators on terms are not counted).
"""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from typing import Any

from onnxtfl.errors import OnnxtflError
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.model import FormatName, Model
from onnxtfl.op_tables.neutral_document import CONSTANT, DocumentedOp, documented_ops
from onnxtfl.options import Options
from onnxtfl.pipeline import passes_for
from onnxtfl.pipeline_run import PipelineRun
from onnxtfl.rewriting.made_ops import made_ops
from onnxtfl.rewriting.registry import all_rules
from onnxtfl.targets import Target
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget

MOST_NAMES = 4
"""The most names in a cell of the table."""
_CUSTOM = "CustomCall"


@dataclass(frozen=True)
class Written:
    """How an example is written in a format.

    `how`: "directly" (the op has a form of its own), "by decomposition", "resolved" (no op remains) or "no". `ops`: the
    ops of the format; for "directly" those that are a form of the op. `why`: the error, for "no".
    """

    how: str
    ops: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        match self.how:
            case "directly":
                return _listed(self.ops)
            case "by decomposition":
                return f"by {_listed(self.ops)}"
            case "resolved":
                return "resolved"
        return f"**no**: {self.why}"


@dataclass(frozen=True)
class NeutralRow:
    """The row of an operation: `op` is our name, "" for values with data (Constant).

    `evaluated`: "yes", or why there is no evaluation. `from_tflite`, `from_onnx`: the ops of the formats whose rules
    make it, the most specific rules first. `differs`: where our declaration differs from the document.
    """

    number: int
    name: str
    op: str
    evaluated: str
    to_tflite: Written
    to_onnx: Written
    from_tflite: tuple[str, ...]
    from_onnx: tuple[str, ...]
    differs: str

    @property
    def is_complete(self) -> bool:
        """Whether the op is written in both formats; a user's kernel has no evaluation by nature."""
        return all(written.how != "no" for written in (self.to_tflite, self.to_onnx))

    def cells(self) -> list[str]:
        """Return the cells of the row in Markdown."""
        ours = self.op or "a constant"
        read = (_listed(names) if names else "-" for names in (self.from_tflite, self.from_onnx))
        return [str(self.number), self.name, ours, self.evaluated, str(self.to_tflite), str(self.to_onnx), *read]


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown} and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else shown


@functools.cache
def neutral_rows() -> tuple[NeutralRow, ...]:
    """Return the rows of all operations, in the document's order."""
    readers = made_ops(all_rules())
    return tuple(_row(entry, readers) for entry in documented_ops())


def _row(entry: DocumentedOp, readers: dict[str, dict[str, tuple[str, ...]]]) -> NeutralRow:
    name = "" if entry.op is None else entry.op.name
    tflite, onnx = readers["tflite"].get(name, ()), readers["onnx"].get(name, ())
    if entry.name == CONSTANT:
        tflite, onnx = ("constant tensors",), ("initializers", "Constant")
    if entry.name == _CUSTOM:
        tflite, onnx = ("custom ops (--allow-custom)",), ("ops of other domains (--allow-custom)",)
    to_tflite, to_onnx = _written(entry, TfliteTarget(), "onnx"), _written(entry, OnnxTarget(None), "tflite")
    return NeutralRow(
        *(entry.number, entry.name, name, _evaluated(entry), to_tflite, to_onnx),
        _closest_first(tflite, name, to_tflite),
        _closest_first(onnx, name, to_onnx),
        entry.differs,
    )


def _closest_first(names: tuple[str, ...], op: str, written: Written) -> tuple[str, ...]:
    """Return the ops of a format that are read as `op`; those that it is written as and those of its name first."""
    return tuple(sorted(names, key=lambda name: (name not in written.ops, name.replace("_", "").lower() != op.lower())))


def _evaluated(entry: DocumentedOp) -> str:
    return "yes" if entry.is_evaluated else "no: a kernel of the user"


def _written(entry: DocumentedOp, target: Target, source: FormatName) -> Written:
    """Convert the example to the format of `target`."""
    try:
        graph = converted(entry.graph(), target, source)
    except OnnxtflError as error:
        return Written("no", why=error.message)
    if entry.op is None:
        return Written("directly", ("constant tensor" if target.name == "tfl" else "initializer",))
    nodes = list(graph.walk())
    own = [node for node in nodes if node.lowered_from is entry.op]
    names = tuple(dict.fromkeys(node.op.name_in_file for node in own or nodes))
    return Written("directly" if own else "by decomposition" if names else "resolved", names)


def converted(graph: Graph, target: Target, source: FormatName) -> Graph:
    """Return the graph of `target`'s ops for a neutral graph, which is consumed."""
    options = Options(allow_custom=True)
    with PipelineRun.of(options, target, passes_for(target, options)) as conversion:
        return conversion.run(Model(graph, format=source))


def table() -> str:
    """Return the table in Markdown."""
    rows = "\n".join(f"| {' | '.join(row.cells())} |" for row in neutral_rows())
    head = ("", "operation", "op", "evaluated", "to TFLite", "to ONNX", "from TFLite", "from ONNX")
    return f"| {' | '.join(head)} |\n|{' --- |' * len(head)}\n{rows}\n"


def as_values() -> list[dict[str, Any]]:
    """Return the rows as values for JSON."""
    return [{**asdict(row), "is_complete": row.is_complete} for row in neutral_rows()]
