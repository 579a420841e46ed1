"""An op instance: the operands, results and options of an op, by their names in its signature."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.dims import Shape
from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType, ResourceType, TensorType, rank_of
from onnxtfl.targets.table import OpEntry, Parameter

Bound = tuple[int, Parameter, Value]
_READ = 1 << 12
"""The most elements of a constant that is read."""


class BoundOp:
    """The operands and results of an op, by the parameters of its signature.

    `operands` and `results`: (index, parameter, value) of each that is present; operands beyond those of the
    signature are left out. `variables`: the values of each variable. `options`: the options of a TFLite op, the
    attributes of an ONNX op. `main`: the variable whose values the op is about. `matrix_rank`: how many trailing axes
    of its operands are those of matrices.
    """

    def __init__(
        self,
        parameters: tuple[Sequence[Parameter], Sequence[Parameter]],
        operands: Sequence[Value | None],
        results: Sequence[Value],
        options: Mapping[str, Any],
        main: str = "T",
        matrix_rank: int = 0,
    ) -> None:
        self.operands = list(_bind(parameters[0], operands))
        self.results = list(_bind(parameters[1], results))
        self.options, self.main, self.matrix_rank = options, main, matrix_rank
        self.variables: defaultdict[str, list[Value]] = defaultdict(list)
        for _, parameter, value in (*self.operands, *self.results):
            self.variables[parameter.variable].append(value)

    def named(self, name: str) -> list[Value]:
        """The values of that operand or result (none if it is absent, several if it is variadic)."""
        return [v for _, p, v in (*self.operands, *self.results) if p.name == name]


class OpInstance(BoundOp):
    """The tfl op that a condition or a kernel form is checked against; `is_laid_out`: whether its axes are in
    order. `widens`: whether kernels take a float16 constant that is widened for a constant.
    """

    def __init__(
        self,
        entry: OpEntry,
        operands: Sequence[Value | None],
        results: Sequence[Value],
        options: Mapping[str, Any],
        *,
        is_laid_out: bool = True,
        widens: bool = False,
    ) -> None:
        super().__init__((entry.operands, entry.results), operands, results, options, matrix_rank=entry.matrix_rank)
        self.entry, self.is_laid_out, self.widens = entry, is_laid_out, widens

    def is_known(self, value: Value) -> bool:
        """Whether a kernel that needs a constant takes `value`."""
        return value.is_constant or (self.widens and is_prepared(value))

    @functools.cached_property
    def elements(self) -> Mapping[str, frozenset[str]]:
        """The element types of the values of each variable, in the table's notation."""
        return {variable: frozenset(map(element_name, values)) - {""} for variable, values in self.variables.items()}

    @functools.cached_property
    def quantizations(self) -> Mapping[str, frozenset[Quantization]]:
        """The quantizations of the values of each variable."""
        every = self.variables.items()
        return {variable: frozenset(q for v in values if (q := quantization_of(v))) for variable, values in every}

    @functools.cached_property
    def ranks(self) -> Mapping[str, int]:
        """The highest known rank of the values of each variable, -1 if none is known."""
        return {variable: max(map(_rank, values)) for variable, values in self.variables.items()}

    @property
    def per_axis_variables(self) -> set[str]:
        """The variables of values that have a scale for each index of an axis."""
        return {variable for variable, found in self.quantizations.items() if not all(q.per_tensor for q in found)}

    def names_of(self, variable: str) -> str:
        """The names of the operands of `variable`, for messages; "results" if it has none."""
        return " and ".join(dict.fromkeys(p.name for _, p, _ in self.operands if p.variable == variable)) or "results"

    def asymmetric(self) -> Iterator[str]:
        """The names of operands and results whose zero point must be 0 but is not.

        XNNPACK does not load weights with zero points per axis.
        """
        for _, parameter, value in (*self.operands, *self.results):
            quantization = quantization_of(value)
            if quantization is not None and not quantization.is_centered:
                wide = quantization.storage != "int8" and quantization.dtype.is_signed
                wide |= not quantization.per_tensor and parameter.name == self.entry.unread_zero.get("operand")
                if wide or (parameter.name == self.entry.symmetric and quantization.dtype.is_signed):
                    yield parameter.name

    def has_fixed_results(self) -> bool:
        """Whether quantized results have the fixed scale and zero point of the op."""
        found = [q for _, _, v in self.results if (q := quantization_of(v)) is not None]
        fixed = self.entry.fixed_results
        return all((q.scales[0], q.zero_points[0]) == fixed.get(f"q{q.storage}") for q in found)

    def bad_scales(self) -> Iterator[str]:
        """The conditions on the scales of quantized operands that do not hold."""
        stored = {v.type.storage.value for _, _, v in self.operands if isinstance(v.type, TensorType)}
        for condition in self.entry.scales:
            of, _, rest = condition.rpartition(": ")
            if (of and stored.isdisjoint(of.split())) or not self._scales(self.operands):
                continue
            ratio, _, limit = rest.partition(" < ")
            above, _, below = ratio.partition(" / ")
            largest = math.prod(max(self._scales_of(side), default=0.0) for side in above.split(" * "))
            if not largest < float(limit) * (min(self._scales_of(below), default=math.inf) if below else 1.0):
                yield condition

    def _scales_of(self, side: str) -> list[float]:
        """The scales of all operands, of the results, or of the operand of that name; |name|: its largest magnitude."""
        if side.startswith("|"):
            named = self.named(side.strip("|"))
            return [_largest(v, q) for v in named if (q := quantization_of(v)) is not None and q.per_tensor]
        sides = {"operand": self.operands, "result": self.results}
        return self._scales(sides.get(side) or [bound for bound in self.operands if bound[1].name == side])

    def _scales(self, bound: Sequence[Bound]) -> list[float]:
        """The scales of the quantized values among `bound`."""
        return [s for _, _, v in bound if (q := quantization_of(v)) is not None for s in q.scales]

    @functools.cached_property
    def highest_rank(self) -> int:
        """The highest known rank of any operand."""
        return max((_rank(v) for _, _, v in self.operands), default=0)

    @functools.cached_property
    def broadcasts(self) -> bool:
        """Whether the operands have different shapes (of a product of matrices: different batches)."""
        return len(set(self._shapes())) > 1

    def broadcasts_scalars(self) -> bool:
        """Whether all operands of more than one element have the same shape; never for products of matrices."""
        shapes = {s for s in self._shapes() if s is None or any(d != 1 for d in s)}
        return not self.entry.matrix_rank and len(shapes) <= 1

    def _shapes(self) -> list[Shape | None]:
        shapes = [v.type.shape for _, _, v in self.operands if isinstance(v.type, TensorType)]
        inner = self.entry.matrix_rank
        return [s[: len(s) - inner] if s is not None else None for s in shapes] if inner else shapes


def _largest(value: Value, quantization: Quantization) -> float:
    """The largest magnitude of a quantized value: of the elements of a small constant, else of what its type stores."""
    is_read = value.data is not None and value.data.size <= _READ
    found = value.numpy() if is_read else np.asarray(quantization.bounds)
    return float(np.abs(found).max(initial=0.0))


def is_prepared(value: Value) -> bool:
    """Whether runtimes prepare `value` before the first run: constants, and float16 ones that are widened."""
    node = value.producer
    widens = node is not None and (node.op is ops.Convert or node.op.name == "tfl.DEQUANTIZE")
    return value.is_constant or (widens and node is not None and is_half_constant(node.operand(0)))


def is_half_constant(value: Value) -> bool:
    """Whether `value` is a float16 constant."""
    return value.is_constant and value.dtype is DType.FLOAT16


def element_name(value: Value) -> str:
    """The element type of a value in the table's notation: "float32", "qint8" if quantized, "resource"."""
    if isinstance(value.type, TensorType):
        return f"q{value.type.storage.value}" if value.type.quantization else value.type.dtype.value
    return "resource" if isinstance(value.type, ResourceType) else "" if value.type is None else "aggregate"


def dtypes_of(names: frozenset[str]) -> frozenset[DType]:
    """The element types among `names` (with "q": storage types of quantized tensors)."""
    known = {d.value: d for d in DType}
    return frozenset(known[n.removeprefix("q")] for n in names if n.removeprefix("q") in known)


def _rank(value: Value) -> int:
    rank = rank_of(value.type)
    return -1 if rank is None else rank


def _bind(parameters: Sequence[Parameter], values: Sequence[Value | None]) -> Iterator[Bound]:
    """A variadic parameter has all values except the last ones, which belong to the parameters after it."""
    spare = len(values) - (len(parameters) - 1)
    index = 0
    for parameter in parameters:
        for value in values[index : index + (spare if parameter.variadic else 1)]:
            if value is not None:
                yield index, parameter, value
            index += 1
