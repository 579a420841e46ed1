"""One use of a tfl op: its operands, results and options bound to the names of its signature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import DType, ResourceType, TensorType
from onnxtfl.targets.refusal import Refusal
from onnxtfl.targets.table import OpEntry, Parameter

if TYPE_CHECKING:
    from onnxtfl.targets.forms import Misfit

Bound = tuple[int, Parameter, Value]


class Use:
    """What a condition or a kernel form is asked about.

    `operands` and `results`: (index, parameter, value) of each that is present; what goes beyond the signature (more
    operands than it has) is left out.
    """

    def __init__(
        self,
        entry: OpEntry,
        operands: Sequence[Value | None],
        results: Sequence[Value],
        options: Mapping[str, Any],
    ) -> None:
        self.entry = entry
        self.operands = list(_bind(entry.operands, operands))
        self.results = list(_bind(entry.results, results))
        self.options = options

    def named(self, name: str) -> list[Value]:
        """The values of that operand or result (none where it is absent, several where it is variadic)."""
        return [v for _, p, v in (*self.operands, *self.results) if p.name == name]

    def of_variable(self, variable: str) -> list[Value]:
        """The values whose element type the variable names."""
        return [v for _, p, v in (*self.operands, *self.results) if p.variable == variable]

    def elements(self, variable: str) -> set[str]:
        """The element types of these values, as the table writes them."""
        return {element_name(v) for v in self.of_variable(variable)} - {""}

    def ranks(self, variable: str) -> list[int]:
        """The ranks, as far as known, of these values."""
        return [r for v in self.of_variable(variable) if (r := _rank(v)) is not None]

    def highest_rank(self) -> int:
        """The highest known rank of any operand."""
        return max((r for _, _, v in self.operands if (r := _rank(v)) is not None), default=0)

    def broadcasts(self) -> bool:
        """Whether the operands have different shapes (of a product of matrices: different batches)."""
        return len(set(self._shapes())) > 1

    def broadcasts_scalars(self) -> bool:
        """Whether their shapes are the same but for those of a single element."""
        return len({s for s in self._shapes() if s is None or any(d != 1 for d in s)}) <= 1

    def _shapes(self) -> list[Shape | None]:
        shapes = [v.type.shape for _, _, v in self.operands if isinstance(v.type, TensorType)]
        inner = self.entry.matrix_rank
        return [s[: len(s) - inner] if s is not None else None for s in shapes] if inner else shapes

    def indices(self, subject: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Indices of the operands, and of the results, that are called so or whose element type is named so."""
        operands = tuple(i for i, p, _ in self.operands if subject in (p.name, p.variable))
        return operands, tuple(i for i, p, _ in self.results if subject in (p.name, p.variable))

    def refuse(self, misfit: Misfit) -> Refusal:
        """The refusal that tells of `misfit`."""
        operands, results = self.indices(misfit.subject)
        message = f"{self.entry.name} takes {misfit.what} {misfit.wanted}, not {misfit.found}"
        return Refusal(misfit.kind, message, misfit.allowed, misfit.limit, operands, results)


def element_name(value: Value) -> str:
    """The element type of a value as the table writes it: "float32", "qint8" where quantized, "resource"."""
    if isinstance(value.type, TensorType):
        return f"q{value.type.storage.value}" if value.type.quantization else value.type.dtype.value
    return "resource" if isinstance(value.type, ResourceType) else "" if value.type is None else "aggregate"


def dtypes_of(names: frozenset[str]) -> frozenset[DType]:
    """The element types among `names` (of which each may stand for a quantized tensor's storage)."""
    known = {d.value: d for d in DType}
    return frozenset(known[n.removeprefix("q")] for n in names if n.removeprefix("q") in known)


def _rank(value: Value) -> int | None:
    return value.type.rank if isinstance(value.type, TensorType) else None


def _bind(parameters: Sequence[Parameter], values: Sequence[Value | None]) -> Iterator[Bound]:
    """A variadic parameter takes all values that those behind it leave."""
    spare = len(values) - (len(parameters) - 1)
    index = 0
    for parameter in parameters:
        for value in values[index : index + (spare if parameter.variadic else 1)]:
            if value is not None:
                yield index, parameter, value
            index += 1
