"""The page docs/neutral-ops.md: what each operation of the neutral graph means, with a worked example.

The text is that of the ops' docstrings; the examples are evaluated here (tests/unit/test_neutral_document.py evaluates
those of the page again).
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import REQUIRED, Attribute
from onnxtfl.ir.data import Array
from onnxtfl.ir.declaration import ANY, FLOATS, INTEGERS, Operand
from onnxtfl.ir.document import FORMS
from onnxtfl.ir.op import Op
from onnxtfl.ir.symbols import symbol_scope
from onnxtfl.ir.text import print_graph
from onnxtfl.ir.types import DType
from onnxtfl.op_tables.neutral_document import DocumentedOp, documented_ops
from onnxtfl.op_tables.neutral_table import table

_HEAD = """# Neutral operations

Generated from the declarations of the ops by `make docs`; a test fails when it is stale.

Conversions go through one graph of neutral ops, which `onnxtfl inspect MODEL --stage simplify` prints and
[architecture.md](architecture.md) describes. Its 141 operations are listed here by the names of their document, with
what each means, its operands, attributes and results, and an example in the text form of graphs, evaluated in NumPy.
Where our declaration has another spelling than the document, the document's form is read too, and becomes our ops.
`onnxtfl ops --neutral` prints the table; there are further neutral ops, where the formats need them.

- **to TFLite**, **to ONNX** — the op of the format as which the example is written; *by*: the ops to which it is
  decomposed; *resolved*: no op remains.
- **from TFLite**, **from ONNX** — the ops of the format whose conversion rules name the op, the closest first.
"""
_CONSTANT = """A value with data instead of an op: the elements of a tensor, which the text form prints where they are
used first."""
_MARKED = re.compile(r"[*<]|\[(?=[^\]]*\]\()")
"""Characters of plain text that Markdown would read as emphasis, tags and links."""
_COMPLEX = frozenset(dtype for dtype in DType if dtype.is_complex)
_GROUPS = {"integers": INTEGERS, "floats": FLOATS, "complex numbers": _COMPLEX}
"""Sets of element types by name."""


def neutral_page() -> str:
    """Return the page in Markdown."""
    sections = "\n".join("\n".join(_section(entry)) for entry in documented_ops())
    return f"{_HEAD}\n## Table\n\n{table()}\n{sections}"


def _section(entry: DocumentedOp) -> Iterator[str]:
    op = entry.op
    yield f"## {entry.name}\n"
    if op is not None and op.name != entry.name:
        yield f"Here called `{op.name}`" + (", with a bias.\n" if entry.name == "ConvBias" else ".\n")
    yield f"{_CONSTANT if op is None else markdown(inspect.getdoc(op) or '')}\n"
    if entry.differs:
        yield f"Differs from the document: {_escaped(entry.differs)}.\n"
    if op is not None:
        yield from _declaration(op.operands, op.attributes, op)
    yield f"```text\n{example(entry)}\n```\n"
    if entry.document:
        yield from _form(entry)


def _form(entry: DocumentedOp) -> Iterator[str]:
    """Yield the form of the document, with the example in it."""
    form = None if entry.op is None else FORMS.get(entry.op)
    yield "In the form of the document:\n"
    if form is None:
        yield "Attributes that are not given are those of the declared type of the result.\n"
    else:
        yield f"{markdown(form.meaning)}\n"
        yield from _declaration(form.operands, form.attributes)
    yield f"```text\n{entry.document}\n```\n"


def _declaration(
    operands: Sequence[Operand], attributes: Mapping[str, Attribute], op: type[Op] | None = None
) -> Iterator[str]:
    """Yield the table of operands, attributes, and results of `op`."""
    rows = [f"| `{v.name}` | operand | {_types(v)} |" for v in operands]
    rows += [f"| `{name}` | attribute | {_attribute(kind)} |" for name, kind in attributes.items()]
    rows += [f"| `{v.name}` | result | {_types(v, op)} |" for v in (op.results if op else ())]
    yield "| name | | element types; kind and default |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _types(value: Operand, op: type[Op] | None = None) -> str:
    """Return the element types of an operand, or of a result of `op`."""
    likes = value.like or (op.operands[0].name if op is not None and op.operands and value.dtypes == ANY else "")
    found = f"like `{likes}`" if likes else dtypes_text(value.dtypes)
    marks = [word for word, holds in (("optional", value.optional), ("any number", value.variadic)) if holds]
    return ", ".join([found, *marks])


def dtypes_text(dtypes: frozenset[DType]) -> str:
    """Return the text for a set of element types."""
    if dtypes == ANY:
        return "any"
    groups = {name: group for name, group in _GROUPS.items() if group <= dtypes}
    others = dtypes.difference(*groups.values())
    return ", ".join([*groups, *sorted(dtype.value for dtype in others)])


def _attribute(kind: Attribute) -> str:
    """Return the kind of an attribute and its default."""
    words = "one of " + ", ".join(f"`{choice}`" for choice in kind.choices) if kind.choices else kind.meaning
    return f"{words}; {'required' if kind.default is REQUIRED else f'default `{_default(kind.default)}`'}"


def _default(value: Any) -> str:
    if isinstance(value, DType):
        return value.value
    return str(list(value)) if isinstance(value, tuple) else str(value)


def markdown(text: str) -> str:
    """Return a docstring as Markdown: literal blocks are fenced, characters with a meaning in Markdown escaped."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if found and found[-1].endswith("::") and paragraph.startswith("    "):
            found[-1] = found[-1].removesuffix(":")
            found.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            found.append(_escaped(paragraph))
    return "\n\n".join(found)


def _escaped(paragraph: str) -> str:
    plain = re.sub(r":\w+:(`[^`]*`)", r"\1", paragraph)
    parts = re.split(r"(`[^`]*`)", plain)
    return "".join(part if part.startswith("`") else _MARKED.sub(r"\\\g<0>", part) for part in parts)


def example(entry: DocumentedOp) -> str:
    """Return the example of an op, in our form if it differs: the graph, its inputs, and its evaluated outputs."""
    with symbol_scope():  # so that the names of dynamic sizes do not depend on other graphs
        graph, results = entry.graph(), entry.results()
    inputs = [f"%{name} = {values(array)}" for name, array in zip(entry.inputs, entry.arrays(), strict=True)]
    names = [v.name or "" for v in graph.outputs]
    outputs = [f"%{name} = {values(array)}" for name, array in zip(names, results or (), strict=bool(results))]
    return "\n".join([print_graph(graph, documented=not entry.document), *inputs, *outputs]).rstrip("\n")


def values(array: Array) -> str:
    """Return the elements as nested lists in JSON (with NaN and Infinity), floats with five digits."""
    return json.dumps(_rounded(array))


def _rounded(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _rounded(value[()]) if value.ndim == 0 else [_rounded(item) for item in value]
    if isinstance(value, complex | np.complexfloating):
        return str(complex(value))
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.5g}") + 0.0
    return value.item() if isinstance(value, np.generic) else value
