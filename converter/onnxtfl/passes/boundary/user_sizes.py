"""Input sizes that the user asked for, and the errors where the model does not fit them."""

from __future__ import annotations

from onnxtfl.errors import InvalidModelError, OnnxtflError, UsageError
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.shown_sizes import shown_shape
from onnxtfl.ir.types import TensorType

_SHOWN = 3
"""Most inputs that a message lists."""
MISFIT = "E-FILE-009"
"""The code of an error of a node whose operands do not fit."""


class GivenSizes:
    """The inputs whose sizes the options change. ``options``: those that are set, as messages mark them."""

    def __init__(self, options: str) -> None:
        self._options = options
        self._declared = dict[str, Shape]()
        self._changed = list[str]()

    def note_declared(self, graph: Graph) -> None:
        """Note the shapes of the inputs in the file."""
        self._declared = _shapes(graph)

    def note_given(self, graph: Graph) -> None:
        """Note which inputs have other shapes now."""
        pairs = [(name, self._declared.get(name), shape) for name, shape in _shapes(graph).items()]
        self._changed = [
            f"input {name!r} is {shown_shape(given)}, in the model {shown_shape(declared)}"
            for name, declared, given in pairs
            if declared is not None and declared != given
        ]

    def blamed(self, error: InvalidModelError) -> OnnxtflError:
        """The error, as one of the options where operands do not fit and sizes were changed."""
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
            hint="give sizes that fit, or leave them out",
            code="E-USE-004",
        )


def _shapes(graph: Graph) -> dict[str, Shape]:
    typed = [(value.name or "", value.type) for value in graph.inputs]
    return {name: type_.shape for name, type_ in typed if isinstance(type_, TensorType) and type_.shape is not None}
