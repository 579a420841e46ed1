"""Errors for dynamic inputs and results, and ones with many axes, for targets without these."""

from __future__ import annotations

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.types import TensorType

_HINT = "fix the sizes of the inputs (`--input-shape {0}|input_shapes`)"


def refuse_open_inputs(graph: Graph, title: str) -> None:
    """Raise UnsupportedError that names every dynamic input; `title`: of the target."""
    found = [v for v in graph.inputs if _is_open(v)]
    if found:
        names = ", ".join(repr(v.name) for v in found)
        inputs = "inputs" if len(found) > 1 else "input"
        hint = _HINT.format(" --input-shape ".join(map(_fixed, found)))
        message = f"{title} has no open sizes, which the {inputs} {names} of the model {_have(len(found))}"
        raise UnsupportedError(message, type_=found[0].type, hint=hint, code="E-OP-009")


def refuse_many_axes(graph: Graph, title: str, most: int) -> None:
    """Raise UnsupportedError for an input or output with more than `most` axes."""
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        found = next((v for v in values if isinstance(v.type, TensorType) and (v.type.rank or 0) > most), None)
        if found is not None:
            message = f"{title} has no tensors of more than {most} axes, and the {what} {found.name!r} has {found.rank}"
            hint = f"merge axes of it in the model, so that there are at most {most}"
            raise UnsupportedError(message, type_=found.type, hint=hint, code="E-OP-009")


def refuse_open_results(graph: Graph, title: str) -> None:
    """Raise UnsupportedError for an op whose result has a data-dependent size."""
    for node in graph.walk():
        found = next((v for v in node.results if _is_open(v)), None)
        if found is not None:
            message = f"{title} has no dynamic sizes, and this result has one"
            hint = (
                "cut the model around it (`inputs`, `outputs`), or make the operand that determines the size constant"
            )
            name = node.name or found.name
            raise UnsupportedError(message, node=name, op=node.op.name, type_=found.type, hint=hint, code="E-OP-009")


def _is_open(value: Value) -> bool:
    return isinstance(value.type, TensorType) and not value.type.is_static


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def _fixed(value: Value) -> str:
    """Return example sizes for the command line: 1 for each dynamic one."""
    sizes = value.tensor_type.shape or ()
    return f"{value.name}:{','.join(str(size_or(size, 1)) for size in sizes)}"
