"""The mapping rules: what each op of a file becomes in the neutral graph, and back.

Modules in ``mappings/`` call :func:`row` and the decorators below while they are imported; :func:`rules` imports them
all (once) and gives the tables to the engine. Nobody imports a mapping module by name.

==================  =======================================================================================
rule                signature
==================  =======================================================================================
row                 one-to-one op, both formats, both directions
lift_onnx           ``(b, node) -> Value | sequence of Values``: an ``onnx.X`` node as neutral ops
upgrade             ``(b, node) -> Node-like change``: an old since-version brought to a newer form, in place
lift_tfl            ``(b, node) -> Value | sequence of Values``: a ``tfl.X`` node as neutral ops
regions_of          ``(node) -> Inlined | None``: what the inputs of the regions of a file's op are
lower_tfl           ``(node) -> Form | None``: the tfl op that this neutral node is (None: not in this form)
lower_onnx          ``(node, opset) -> Form | None``: the ONNX op that this neutral node is
decompose           ``(b, node) -> Value | sequence of Values | None``: neutral node as other neutral nodes
decompose_late      the same, after layout
==================  =======================================================================================
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.derived import Derived
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import OPS, Op

Lifted = Value | Sequence[Value]
LiftRule = Callable[[Builder, Node], Lifted]
UpgradeRule = Callable[[Builder, Node], None]
LowerTfl = Callable[[Node], "Form | None"]
LowerOnnx = Callable[[Node, int], "Form | None"]
PrepareRule = Callable[[Node], "Inlined | None"]
DecomposeRule = Callable[[Builder, Node], "Lifted | None"]
Condition = Callable[[Node], bool]
Target = Literal["tfl", "onnx"]


@dataclass(frozen=True, slots=True)
class Form:
    """A neutral node as one op of a target: only a renaming.

    `op`: name in the target ("CONV_2D", "Conv"). `operands` in the target's order (arrays become constants).
    `attributes`: ONNX attributes, or the fields of the TFLite options table (snake_case as in the schema; enums by
    name: ``padding="SAME"``). `results`: which of the node's results the target's op gives, in the target's order
    (None: all). `domain`: ONNX domain.
    """

    op: str
    operands: tuple[Operand, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[int, ...] | None = None
    domain: str = ""


@dataclass(frozen=True, slots=True)
class Inlined:
    """A region that takes the place of its node, and what its inputs are."""

    region: Graph
    operands: Sequence[Value | None]


@dataclass(frozen=True, slots=True)
class Row:
    """A one-to-one op.

    `onnx_attributes` and `tfl_options`: neutral attribute name -> name on that side; `fixed`: attributes with the one
    value that this row means (``Compare`` with EQ is Equal); `fixed_tfl`: options written always.
    """

    op: type[Op]
    onnx: str | None
    since: tuple[int, ...]
    tfl: str | None
    onnx_attributes: Mapping[str, str]
    tfl_options: Mapping[str, str]
    fixed: Mapping[str, Any]
    fixed_tfl: Mapping[str, Any]
    domain: str = ""
    module: str = ""
    """The mapping module that declares the row."""


@dataclass
class Rules:
    """All tables."""

    rows: list[Row] = field(default_factory=list)
    lift_onnx: dict[tuple[str, str], tuple[tuple[int, ...], LiftRule]] = field(default_factory=dict)
    upgrades: dict[tuple[str, str], list[tuple[int, UpgradeRule]]] = field(default_factory=dict)
    lift_tfl: dict[str, LiftRule] = field(default_factory=dict)
    quantized: set[str] = field(default_factory=set)
    regions: dict[str, PrepareRule] = field(default_factory=dict)
    lower_tfl: dict[type[Op], list[LowerTfl]] = field(default_factory=dict)
    lower_onnx: dict[type[Op], list[LowerOnnx]] = field(default_factory=dict)
    decompose: dict[type[Op], list[tuple[Target | None, DecomposeRule]]] = field(default_factory=dict)
    late: dict[type[Op], list[tuple[Target, Condition, DecomposeRule]]] = field(default_factory=dict)


_RULES = Rules()


@functools.cache
def rules() -> Rules:
    """The tables, filled by importing every module of ``onnxtfl.mappings``; derived ops expand."""
    package = importlib.import_module("onnxtfl.mappings")
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda m: m.name):
        importlib.import_module(f"onnxtfl.mappings.{module.name}")
    for op in OPS.values():
        if issubclass(op, Derived):
            decompose(op)(_expand)
    return _RULES


def _expand(b: Builder, node: Node) -> list[Value]:
    assert issubclass(node.op, Derived)
    return node.op.expand(b, node)


def row(
    op: type[Op],
    *,
    onnx: str | None = None,
    since: tuple[int, ...] = (),
    tfl: str | None = None,
    onnx_attributes: Mapping[str, str] | None = None,
    tfl_options: Mapping[str, str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    fixed_tfl: Mapping[str, Any] | None = None,
    domain: str = "",
) -> None:
    """Declare that `op` is one op on each side, with the same operands and results in the same order.

    `since` lists the ONNX versions whose meaning this is (older ones reach it through :func:`upgrade`).
    """
    module = sys._getframe(1).f_globals["__name__"]
    entry = Row(
        op, onnx, since, tfl, onnx_attributes or {}, tfl_options or {}, fixed or {}, fixed_tfl or {}, domain, module
    )
    _RULES.rows.append(entry)
    if onnx is not None:
        _RULES.lift_onnx.setdefault((domain, onnx), (since, functools.partial(_lift_row, entry, entry.onnx_attributes)))
        _RULES.lower_onnx.setdefault(op, []).append(functools.partial(_lower_row_onnx, entry))
    if tfl is not None:
        _RULES.lift_tfl.setdefault(tfl, functools.partial(_lift_row, entry, entry.tfl_options))
        _RULES.lower_tfl.setdefault(op, []).append(functools.partial(_lower_row_tfl, entry))


def lift_onnx(name: str, since: tuple[int, ...], domain: str = "") -> Callable[[LiftRule], LiftRule]:
    """Register how ``onnx.name`` of the since-versions `since` becomes neutral ops."""

    def register(rule: LiftRule) -> LiftRule:
        _RULES.lift_onnx[(domain, name)] = (since, rule)
        return rule

    return register


def upgrade(name: str, since: tuple[int, ...], domain: str = "") -> Callable[[UpgradeRule], UpgradeRule]:
    """Register how `name` of old since-versions is brought, in place, to the form that its lift rule takes.

    The rule changes the node's attributes and operands (with `node.operands` and `node.set_operand`, or by
    :func:`append_operand`).
    """

    def register(rule: UpgradeRule) -> UpgradeRule:
        _RULES.upgrades.setdefault((domain, name), []).extend((version, rule) for version in since)
        return rule

    return register


def rule_name(rule: Callable[..., Any]) -> str:
    """The name of a rule or rewrite: its family and function."""
    function = getattr(rule, "func", rule)
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__.lstrip('_')}"


def append_operand(node: Node, value: Value | None) -> None:
    """Give `node` one more operand."""
    node.operands.append(None)
    node.set_operand(len(node.operands) - 1, value)


def lift_tfl(*names: str, quantized: bool = False) -> Callable[[LiftRule], LiftRule]:
    """Register how the tfl ops `names` become neutral ops; `quantized`: the rule takes quantized tensors too."""

    def register(rule: LiftRule) -> LiftRule:
        for name in names:
            _RULES.lift_tfl[name] = rule
        if quantized:
            _RULES.quantized.update(names)
        return rule

    return register


def regions_of(name: str) -> Callable[[PrepareRule], PrepareRule]:
    """Register what becomes of the regions of a file's op `name` ("onnx.If") before its rule runs.

    The rule sets the types of the regions' inputs; a region that it returns is lifted in place of the node.
    """

    def register(rule: PrepareRule) -> PrepareRule:
        _RULES.regions[name] = rule
        return rule

    return register


def lower_tfl(op: type[Op]) -> Callable[[LowerTfl], LowerTfl]:
    """Register a form that `op` takes in TFLite; several are tried in order."""

    def register(rule: LowerTfl) -> LowerTfl:
        _RULES.lower_tfl.setdefault(op, []).append(rule)
        return rule

    return register


def lower_onnx(op: type[Op]) -> Callable[[LowerOnnx], LowerOnnx]:
    """Register a form that `op` takes in ONNX; several are tried in order."""

    def register(rule: LowerOnnx) -> LowerOnnx:
        _RULES.lower_onnx.setdefault(op, []).append(rule)
        return rule

    return register


def decompose(op: type[Op], target: Target | None = None) -> Callable[[DecomposeRule], DecomposeRule]:
    """Register how `op` is written with other neutral ops where the target does not take it as it is."""

    def register(rule: DecomposeRule) -> DecomposeRule:
        _RULES.decompose.setdefault(op, []).append((target, rule))
        return rule

    return register


def decompose_late(op: type[Op], target: Target, when: Condition) -> Callable[[DecomposeRule], DecomposeRule]:
    """Register a decomposition that fixes an order of axes, and so waits until layout has chosen one.

    Until then a node for which `when` holds counts as legal. The new nodes may not depend on layout themselves.
    """

    def register(rule: DecomposeRule) -> DecomposeRule:
        _RULES.late.setdefault(op, []).append((target, when, rule))
        return rule

    return register


def _lift_row(entry: Row, names: Mapping[str, str], b: Builder, node: Node) -> list[Value]:
    attributes = {ours: node.attributes[theirs] for ours, theirs in names.items() if theirs in node.attributes}
    attributes = {
        k: type(entry.op.defaults[k])(v) if isinstance(entry.op.defaults.get(k), bool) else v
        for k, v in attributes.items()
    }
    return b.many(entry.op, *node.operands, **attributes, **entry.fixed)


def _matches(entry: Row, node: Node) -> bool:
    return all(node.attr(name) == value for name, value in entry.fixed.items())


def _lower_row_onnx(entry: Row, node: Node, opset: int) -> Form | None:
    if not _matches(entry, node) or entry.onnx is None:
        return None
    attributes = {theirs: _plain(node.attr(ours)) for ours, theirs in entry.onnx_attributes.items()}
    return Form(
        entry.onnx, tuple(node.operands), {k: v for k, v in attributes.items() if v is not None}, domain=entry.domain
    )


def _lower_row_tfl(entry: Row, node: Node) -> Form | None:
    if not _matches(entry, node) or entry.tfl is None:
        return None
    options = {theirs: node.attr(ours) for ours, theirs in entry.tfl_options.items()}
    return Form(entry.tfl, tuple(node.operands), {**entry.fixed_tfl, **options})


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
