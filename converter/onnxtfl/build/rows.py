"""Rows: rules in both directions for a neutral op that is one op of a format, with operands and results in the same
order.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from onnxtfl.build.dtypes import dtype_from, number_of
from onnxtfl.build.sizes import clamp_to_int32, constant_elements, narrow_constant, widen_constant
from onnxtfl.dataclass import dataclass
from onnxtfl.ir.attributes import REQUIRED
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.shapes import normalize_axes, normalize_axis
from onnxtfl.rewriting.registry import Condition, Form, lift_onnx, lift_tfl, lower_onnx, lower_tfl

_RANGES = re.compile(r"RELU\w*")
"""The activations that limit a result to a range (CalculateActivationRange of LiteRT's kernel_util.h)."""


def apply_activation(b: Builder, value: Value, node: Node, *, smooth: bool = False) -> Value:
    """Apply the activation in the option `fused_activation_function` of `node` to `value`, as a separate op.

    Kernels limit the result to a range, and ignore the other activations. `smooth`: a kernel that applies all of them
    (ApplyActivationToVector of LiteRT's tensor_utils.h).
    """
    name = node.attr("fused_activation_function", "NONE") or "NONE"
    if smooth and name == "SIGN_BIT":
        return _sign_bit(Term(b, value)).value
    applied = _RANGES.fullmatch(name) or (smooth and name != "NONE")
    return b.foreign("tfl", name, [value], [value.type])[0] if applied else value


def _sign_bit(x: Term) -> Term:
    """Return 1 for negative values and -0 (whose reciprocal is negative), else 0."""
    return ((x < 0) | (x.constant(1) / x < 0)).choose(x.constant(1), 0)


@dataclass(frozen=True)
class Spelled:
    """An attribute in a format: its name, its spelling of neutral values, and its default, which is not written."""

    name: str
    values: Mapping[Any, Any] = field(default_factory=dict)
    default: Any = None

    def read(self, node: Node) -> Any:
        """The neutral value of the attribute of a format's `node`; None if it is absent without a default."""
        theirs = node.attributes.get(self.name, self.default)
        return next((ours for ours, spelling in self.values.items() if spelling == theirs), theirs)

    def written(self, value: Any) -> Any:
        """The format's value for a neutral `value`; None if it is not written."""
        theirs = self.values.get(value, value)
        return None if theirs == self.default else theirs


@dataclass(frozen=True)
class Number(Spelled):
    """An element type that ONNX writes as its code; 0 or absent: None."""

    def read(self, node: Node) -> Any:
        return dtype_from(number) if (number := super().read(node)) else None

    def written(self, value: Any) -> Any:
        return None if value is None else super().written(number_of(value))


@dataclass(frozen=True)
class ResultType(Spelled):
    """The element type of result `index`, which TFLite repeats as an option (none if it has no name)."""

    index: int = 0

    def read(self, node: Node) -> Any:
        return node.results[self.index].dtype

    def written(self, value: Any) -> Any:
        return value.name if self.name else None


@dataclass(frozen=True)
class Entries(Spelled):
    """An attribute that is a constant int32 operand in TFLite: a vector, or a `single` entry. `name`: for messages."""

    index: int = 1
    single: bool = False

    def read(self, node: Node) -> Any:
        entries = constant_elements(node.operand(self.index), self.name)
        return entries[0] if self.single else tuple(entries)


Names = str | Mapping[str, str | Spelled]
"""Attributes with their names in a format; a string lists attributes with the same name in both."""


@dataclass(frozen=True)
class Row:
    """A row for one format."""

    op: type[Op]
    name: str
    attributes: Mapping[str, Spelled]
    always: Mapping[str, Any]
    fixed: Mapping[str, Any]
    axes: Sequence[str]
    integers: Sequence[int]
    when: Condition | None
    domain: str = ""

    def lift(self, b: Builder, node: Node) -> list[Value]:
        """Lift a format's `node` to the neutral op."""
        found = {ours: spelled.read(node) for ours, spelled in self.attributes.items()}
        defaults = {axis: self.op.defaults[axis] for axis in self.axes if found[axis] is None}
        found |= {axis: default for axis, default in defaults.items() if default is not REQUIRED}
        given = {ours: self._typed(ours, value, node) for ours, value in found.items() if value is not None}
        operands = [v for i, v in enumerate(node.operands) if i not in self._entries.values()]
        made = b.many(self.op, *operands, **given, **self.fixed)
        return [apply_activation(b, r, node) for r in made] if node.op.dialect == "tfl" else made

    def _typed(self, name: str, value: Any, node: Node) -> Any:
        if name in self.axes and (rank := node.operand(0).tensor_type.rank) is not None:
            return normalize_axis(value, rank) if isinstance(value, int) else normalize_axes(value, rank)
        return bool(value) if isinstance(self.op.defaults.get(name), bool) else value

    @functools.cached_property
    def _entries(self) -> dict[str, int]:
        """The attributes that are operands in the format, with their places."""
        return {ours: spelled.index for ours, spelled in self.attributes.items() if isinstance(spelled, Entries)}

    def form_onnx(self, node: Node, opset: int) -> Form | None:
        """The ONNX form: bools are integers, trailing absent operands are omitted."""
        form = self._form(node, Op.trimmed(node.operands), widen_constant)
        plain = {k: int(v) if isinstance(v, bool) else v for k, v in form.attributes.items()} if form else {}
        return form and Form(form.op, form.operands, plain, domain=self.domain)

    def form_tfl(self, node: Node) -> Form | None:
        """The TFLite form."""
        return self._form(node, node.operands, narrow_constant)

    def _form(self, node: Node, operands: Sequence[Value | None], integer: Callable[[Value], Operand]) -> Form | None:
        if self.fixed and any(node.attr(k) != v for k, v in self.fixed.items()):
            return None
        if self.when is not None and not self.when(node):
            return None
        taken: list[Operand] = list(operands)
        for i in self.integers:
            if i < len(operands) and (value := operands[i]) is not None:
                taken[i] = integer(value)
        for ours, index in self._entries.items():
            taken.insert(index, clamp_to_int32(node.attr(ours)))
        written = {spelled.name: spelled.written(node.attr(ours)) for ours, spelled in self._options.items()}
        return Form(self.name, tuple(taken), {**self.always, **{k: v for k, v in written.items() if v is not None}})

    @functools.cached_property
    def _options(self) -> dict[str, Spelled]:
        """The attributes that are not in `_entries`."""
        return {ours: spelled for ours, spelled in self.attributes.items() if ours not in self._entries}


def row(
    op: type[Op],
    *,
    onnx: str | None = None,
    since: tuple[int, ...] = (),
    domain: str = "",
    tfl: str | None = None,
    attributes: Names = "",
    onnx_attributes: Names = "",
    tfl_options: Names = "",
    fixed: Mapping[str, Any] | None = None,
    fixed_onnx: Mapping[str, Any] | None = None,
    fixed_tfl: Mapping[str, Any] | None = None,
    axes: Sequence[str] = (),
    integers: Sequence[int] = (),
    when: Condition | None = None,
    lifts: bool = True,
    lowers: bool = True,
) -> None:
    """Declare that `op` is the op `onnx` of the since-versions `since`, the op `tfl`, or both.

    `attributes`: those of both formats; `onnx_attributes` and `tfl_options`: those of one. `fixed`: neutral attributes
    that must have these values (``Compare`` with EQ is Equal); `fixed_onnx` and `fixed_tfl` are always written. `axes`:
    attributes that hold an axis, normalized when lifted. `integers`: operands whose constants are int64 in ONNX and
    int32 in TFLite. `when`: a condition on nodes to write. `lifts` False: another rule lifts these ops; `lowers` False:
    another rule writes them.
    """
    module = sys._getframe(1).f_globals["__name__"]
    both, common = _spelled(attributes), (fixed or {}, axes, integers, when)
    if onnx is not None:
        row_onnx = Row(op, onnx, both | _spelled(onnx_attributes), fixed_onnx or {}, *common, domain)
        if lifts:
            lift_onnx(onnx, since, domain)(_named(row_onnx.lift, module, op))
        if lowers:
            lower_onnx(op)(_named(row_onnx.form_onnx, module, op))
    if tfl is not None:
        row_tfl = Row(op, tfl, both | _spelled(tfl_options), fixed_tfl or {}, *common)
        if lifts:
            lift_tfl(tfl)(_named(row_tfl.lift, module, op))
        if lowers:
            lower_tfl(op)(_named(row_tfl.form_tfl, module, op))


def _spelled(names: Names) -> dict[str, Spelled]:
    pairs = {name: name for name in names.split()} if isinstance(names, str) else names
    return {ours: theirs if isinstance(theirs, Spelled) else Spelled(theirs) for ours, theirs in pairs.items()}


def _named(method: Callable[..., Any], module: str, op: type[Op]) -> Callable[..., Any]:
    """`method` as a rule whose name in the record is the mapping module and the op."""

    def rule(*given: Any) -> Any:
        return method(*given)

    rule.__module__, rule.__qualname__ = module, op.name
    return rule
