"""Input sizes from the options, and errors if the model does not fit them."""

from __future__ import annotations

from onnxtfl.errors import InvalidModelError, OnnxtflError, UsageError
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.shown_sizes import shown_shape
from onnxtfl.ir.types import TensorType

_SHOWN = 3
"""The most inputs in a message."""
MISFIT = "E-FILE-009"
"""The code of errors about operands that do not fit."""


class GivenSizes:
    """The inputs whose sizes the options change. ``options``: the set ones, as messages mark them."""

    def __init__(self, options: str) -> None:
        self._options = options
        self._declared = dict[str, Shape]()
        self._changed = list[str]()

    def note_declared(self, graph: Graph) -> None:
        """Record the shapes of the inputs in the file."""
        self._declared = _shapes(graph)

    def note_given(self, graph: Graph) -> None:
        """Record which inputs have changed shapes."""
        pairs = [(name, self._declared.get(name), shape) for name, shape in _shapes(graph).items()]
        self._changed = [
            f"input {name!r} is {shown_shape(given)}, in the model {shown_shape(declared)}"
            for name, declared, given in pairs
            if declared is not None and declared != given
        ]

    def forget_outputs(self, graph: Graph) -> None:
        """Remove the declared shapes of outputs where the size of an input is another than that in the file."""
        pairs = [(self._declared.get(name, ()), shape) for name, shape in _shapes(graph).items()]
        if any(isinstance(m, int) and m != n for before, after in pairs for m, n in zip(before, after, strict=False)):
            for value in graph.outputs:
                if isinstance(value.type, TensorType):
                    value.type = value.type.with_shape(None)

    def blamed(self, error: InvalidModelError) -> OnnxtflError:
        """Return the error; if operands do not fit and sizes were changed, as an error about the options."""
        if error.code != MISFIT or not self._changed or not self._options:
            return error
        more = [f"{len(self._changed) - _SHOWN} more inputs"] if len(self._changed) > _SHOWN else []
        changed = "; ".join([*self._changed[:_SHOWN], *more])
        message = f"the sizes of {self._options} do not fit the model ({changed}): {error.message}"
        return UsageError(
            message,
            node=error.node,
            op=error.op,
            version=error.version,
            type_=error.type_,
            hint="give sizes that fit, or omit them",
            code="E-USE-004",
        )


def _shapes(graph: Graph) -> dict[str, Shape]:
    typed = [(value.name or "", value.type) for value in graph.inputs]
    return {name: type_.shape for name, type_ in typed if isinstance(type_, TensorType) and type_.shape is not None}
