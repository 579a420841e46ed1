"""The registry of mapping rules, from ops of a file to neutral ops and back.

Modules in ``mappings/`` call the decorators below, and ``rules.row``, while they are imported; :func:`rules_for`
imports those with rules for an op (:mod:`rule_modules`) and returns the tables to the engine. No other module imports a
mapping module.

The order of imports has no effect. A duplicate is an error (RuleError) at import: two lift rules, or a lift rule and an
upgrade, for the same op and version; two decompositions without conditions for the same op, target, :data:`Order` and
benefit. If the conditions of two rules of equal precedence are both true for a node, its decomposition is an error. A
form that does not apply to a node returns None. Of the forms that the target accepts, the one with the lowest cost is
written; ties are resolved by rank, then by name.

==================  =======================================================================================
rule                signature
==================  =======================================================================================
lift_onnx           ``(b, node) -> Value | sequence of Values``: an ``onnx.X`` node as neutral ops
upgrade             ``(b, node) -> None``: rewrite a node of an old since-version to a newer form, in place
lift_tfl            ``(b, node) -> Value | sequence of Values``: a ``tfl.X`` node as neutral ops
regions_of          ``(node) -> Inlined | Steps | sequence of Inlined | None``: types and constants of the inputs of an
                    op's regions; several: one of them runs
carried_by          ``(node) -> triples``: the body's input and output for each value that a loop carries, declared type
calls_custom        ``(node) -> attributes``: the Custom that a tfl op calls, with the option `allow_custom`
lower_tfl           ``(node) -> Form | None``: the tfl op for a neutral node (None: this form does not apply)
lower_onnx          ``(node, opset) -> Form | None``: the ONNX op for a neutral node
requires_opset      ``(node) -> int``: the lowest opset with ops for a neutral node, if not 0
decompose           ``(b, node) -> Value | sequence of Values | None``: neutral node as other neutral nodes (None: try
                    the next rule)
decompose_late      the same, after layout assignment
==================  =======================================================================================
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.builder import Builder, Operand
from onnxtfl.ir.formula import Derived
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.types import TensorType, Type
from onnxtfl.rewriting import rule_modules
from onnxtfl.schemas.target_tables import target_tables

Lifted = Value | Sequence[Value]
LiftRule = Callable[[Builder, Node], Lifted]
UpgradeRule = Callable[[Builder, Node], None]
LowerTfl = Callable[[Node], "Form | None"]
LowerOnnx = Callable[[Node, int], "Form | None"]
OpsetRule = Callable[[Node], int]
QuantizedForm = Callable[[Node, "Form"], "Form | None"]
CustomRule = Callable[[Node], Mapping[str, Any]]
CarriedRule = Callable[[Node], Sequence[tuple[Value, Value, Type | None]]]
Steps = Generator["Inlined", list[Value], Sequence[Value]]
"""Regions that together replace a node: each is yielded, its lifted outputs are sent; returns the node's results."""
Prepared: TypeAlias = "Inlined | Steps | Sequence[Inlined] | None"
PrepareRule = Callable[[Node], Prepared]
DecomposeRule = Callable[[Builder, Node], "Lifted | None"]
Condition = Callable[[Node], bool]
Target = str
"""The target of a rule: "onnx", or the `rules` of a table in ``schemas/targets/``. Targets form chains: rules for the
narrowest come first.
"""
K = TypeVar("K")
R = TypeVar("R")
Order = Literal["elements", "operands", "axes", "formula"]
"""The order in which decompositions are tried: first those that change the element type, then those that rewrite
operands for kernels, then those that change or merge axes, last the formulas over other ops. At the same place in the
order, a rule for one target is tried before a rule for those that it is one of, and for all; then the one of the
higher benefit; then one with a condition before one without.
"""
ANY_VERSION = 0
_ORDERS: tuple[Order, ...] = ("elements", "operands", "axes", "formula")


class RuleError(Exception):
    """A duplicate registration: a bug in the mappings, raised while they are imported."""


@dataclass(frozen=True, slots=True)
class Computed:
    """An operand that the neutral op does not have in this form: computed with neutral ops after layout assignment."""

    type: TensorType
    compute: Callable[[Builder], Value]


@dataclass(frozen=True, slots=True)
class Form:
    """A neutral node as one op of a target.

    `op`: name in the target ("CONV_2D", "Conv"). `operands` in the target's order (arrays become constants).
    `attributes`: ONNX attributes, or the fields of the TFLite options table (snake_case as in the schema; enums by
    name: ``padding="SAME"``). `results`: which of the node's results the target's op has, in the target's order
    (None: all). `domain`: ONNX domain. `types`: the types of the op's results if they differ from the node's; `finish`
    then computes the node's results from them. `own_version`: the version of an op that only a user's kernel computes.
    """

    op: str
    operands: tuple[Operand | Computed, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[int, ...] | None = None
    domain: str = ""
    types: tuple[TensorType, ...] | None = None
    finish: Callable[[Builder, Sequence[Value]], Sequence[Value]] | None = None
    own_version: int | None = None

    @property
    def renames(self) -> bool:
        """Whether there are no computed operands or results."""
        return self.finish is None and Computed not in map(type, self.operands)


@dataclass(frozen=True, slots=True)
class Inlined:
    """A region that replaces its node, and the operands for its inputs."""

    region: Graph
    operands: Sequence[Value | None]


@dataclass(frozen=True, slots=True)
class LateRule:
    """A decomposition that runs after layout assignment, and the condition on its nodes."""

    when: Condition
    func: DecomposeRule


class Decomposition(NamedTuple):
    """A rule for nodes that satisfy `when` (None: all), with its benefit."""

    rule: DecomposeRule
    when: Condition | None = None
    benefit: int = 0

    def applies(self, node: Node) -> bool:
        """Whether `node` satisfies the condition of the rule."""
        return self.when is None or self.when(node)


@dataclass
class Rules:
    """All tables. The keys of `lift_onnx` and `upgrades` are the op (domain, name) and the since-version."""

    lift_onnx: dict[tuple[str, str], dict[int, LiftRule]] = field(default_factory=dict)
    upgrades: dict[tuple[str, str], dict[int, UpgradeRule]] = field(default_factory=dict)
    lift_tfl: dict[str, LiftRule] = field(default_factory=dict)
    regions: dict[str, PrepareRule] = field(default_factory=dict)
    carried: dict[str, CarriedRule] = field(default_factory=dict)
    custom_calls: dict[str, CustomRule] = field(default_factory=dict)
    lower_tfl: dict[type[Op], list[tuple[int, LowerTfl]]] = field(default_factory=dict)
    lower_onnx: dict[type[Op], list[tuple[int, LowerOnnx]]] = field(default_factory=dict)
    opsets: dict[type[Op], OpsetRule] = field(default_factory=dict)
    decompose: dict[type[Op], dict[tuple[Order, Target | None], list[Decomposition]]] = field(default_factory=dict)
    late: dict[type[Op], dict[Target, LateRule]] = field(default_factory=dict)

    lower_quantized: dict[str, tuple[str, str, QuantizedForm]] = field(default_factory=dict)
    refused: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    refused_tfl: dict[str, tuple[str, str]] = field(default_factory=dict)
    only_onnx: dict[type[Op], str] = field(default_factory=dict)
    ordered: dict[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)

    def tfl_forms(self, node: Node) -> list[Form]:
        """Return the tfl forms of `node`, sorted by rank and name."""
        return _ranked(self.lower_tfl.get(node.op, ()), node)

    def onnx_forms(self, node: Node, opset: int) -> list[Form]:
        """Return the ONNX forms of `node` at `opset`, sorted by rank and name."""
        return _ranked(self.lower_onnx.get(node.op, ()), node, opset)

    def quantized_forms(self, node: Node, opset: int) -> list[Form]:
        """Return the QOperator forms of `node`, on quantized types, at `opset`."""
        found = ((form, self.lower_quantized.get(form.op)) for form in self.onnx_forms(node, opset) if not form.domain)
        return [made for form, rule in found if rule is not None and (made := rule[2](node, form)) is not None]

    @functools.cached_property
    def quantized_ops(self) -> frozenset[tuple[str, str]]:
        """Return domain and name of the QOperator ops among the forms."""
        return frozenset((domain, name) for domain, name, _ in self.lower_quantized.values())

    def decompositions(self, op: type[Op], *chain: Target) -> list[DecomposeRule]:
        """Return all decompositions of an op for a target and its wider targets, in order, and the op's expansion."""
        derived = [expand] if issubclass(op, Derived) else []
        return [*(one.rule for equal in self._by_precedence(op, (*chain, None)) for one in equal), *derived]

    def decompositions_of(self, node: Node, *chain: Target, order: Order | None = None) -> Iterator[DecomposeRule]:
        """Return those that apply to `node`, of one `order` or of all. RuleError for two of equal precedence."""
        yield from self.own_decompositions(node, *chain, None, orders=_ORDERS if order is None else (order,))
        if issubclass(node.op, Derived) and order in (None, "formula"):
            yield expand

    def own_decompositions(
        self, node: Node, *targets: Target | None, orders: Sequence[Order] = _ORDERS
    ) -> Iterator[DecomposeRule]:
        """Return those of `targets` (None: those registered for all) that apply to `node`."""
        for equal in self._by_precedence(node.op, targets, orders):
            applying = [one.rule for one in equal if one.applies(node)]
            if len(applying) > 1:
                raise RuleError(f"decomposing {node.op.name} has two rules of one benefit: {_listed(applying)}")
            yield from applying

    def are_for(self, op: type[Op], targets: Sequence[Target]) -> bool:
        """Return whether decompositions of an op are registered for one of `targets`."""
        found = self.decompose.get(op)
        return found is not None and any(target in targets for _, target in found)

    def _by_precedence(
        self, op: type[Op], targets: Sequence[Target | None], orders: Sequence[Order] = _ORDERS
    ) -> Iterator[list[Decomposition]]:
        """Yield groups of decompositions of equal precedence, in order."""
        found = self.decompose.get(op, {})
        for order, target in itertools.product(orders, targets):
            known = sorted(found.get((order, target), ()), key=_precedence)
            yield from (list(equal) for _, equal in itertools.groupby(known, _precedence))

    def late_rule(self, op: type[Op], *chain: Target) -> LateRule | None:
        """Return the decomposition after layout assignment for a target or one of its wider targets."""
        found = self.late.get(op)
        return next((found[target] for target in chain if target in found), None) if found else None


def _precedence(one: Decomposition) -> tuple[int, bool]:
    return -one.benefit, one.when is None


def _listed(found: Iterable[Any]) -> str:
    return " and ".join(sorted(map(rule_name, found)))


def _ranked(ranked: Sequence[tuple[int, Callable[..., Form | None]]], *given: Any) -> list[Form]:
    """Return the forms of rules, given a node, sorted by the rank of the rule and the name of the op."""
    found = [(rank, form) for rank, rule in ranked if (form := rule(*given)) is not None]
    if len(found) > 1:
        found.sort(key=lambda one: (one[0], one[1].op))
    return [form for _, form in found]


_RULES = Rules()


_REGISTERED: set[type[Op]] = set()
"""The ops whose rules are in the tables."""


def rules_for(op: type[Op]) -> Rules:
    """Return the tables, with all rules for an op, neutral or of a file; those for other ops may be missing."""
    if op not in _REGISTERED:
        rule_modules.import_contrib(op)
        rule_modules.import_for(rule_modules.op_key(op))
        _REGISTERED.add(op)
    return _RULES


def quantized_rules() -> Rules:
    """Return the tables, with all rules for QOperator ops."""
    rule_modules.import_for(rule_modules.QUANTIZED)
    return _RULES


@functools.cache
def all_rules() -> Rules:
    """Return the tables with all rules of all domains."""
    rule_modules.import_all()
    return _RULES


def expand(b: Builder, node: Node) -> list[Value]:
    """Expand a node of a derived op by the op's definition."""
    assert issubclass(node.op, Derived)
    return node.op.expansion(b, node)


def _add(table: dict[K, R], key: K, rule: R, what: str) -> None:
    """Add `rule` to `table`; RuleError if the key has one already."""
    if key in table:
        raise RuleError(f"{what} has two rules: {rule_name(table[key])} and {rule_name(rule)}")
    table[key] = rule


def _add_versions(
    table: dict[tuple[str, str], dict[int, R]],
    other: Mapping[tuple[str, str], Mapping[int, object]],
    op: tuple[str, str],
    since: Iterable[int],
    rule: R,
) -> None:
    """Add a rule for versions of an ONNX op; RuleError if either table has one for such a version already."""
    for version in since:
        what = f"lifting {'::'.join(filter(None, op))}-{version}"
        for claimed in (table, other):
            if version in claimed.get(op, {}):
                raise RuleError(f"{what} has two rules: {rule_name(claimed[op][version])} and {rule_name(rule)}")
        table.setdefault(op, {})[version] = rule


def _decorator(add: Callable[[R], None]) -> Callable[[R], R]:
    """Return a decorator that adds a rule to the tables."""

    def register(rule: R) -> R:
        add(rule)
        return rule

    return register


def lift_onnx(name: str, since: tuple[int, ...], domain: str = "") -> Callable[[LiftRule], LiftRule]:
    """Register the rule that lifts ``onnx.name`` of the since-versions `since` (ANY_VERSION: every version)."""

    return _decorator(lambda rule: _add_versions(_RULES.lift_onnx, _RULES.upgrades, (domain, name), since, rule))


def refuse_onnx(*names: str, why: str, hint: str, domain: str = "") -> None:
    """Register why ``onnx.name`` has no conversion, and what to do instead."""
    for name in names:
        _add(_RULES.refused, (domain, name), (why, hint), f"refusing {name}")


def refuse_tfl(*names: str, why: str, hint: str) -> None:
    """Register why ``tfl.name`` has no conversion, and what to do instead."""
    for name in names:
        _add(_RULES.refused_tfl, name, (why, hint), f"refusing {name}")


def only_onnx(*operations: type[Op], hint: str) -> None:
    """Register neutral ops that TFLite has no form of, and what to do instead."""
    for op in operations:
        _add(_RULES.only_onnx, op, hint, f"advice on {op.name}")


def calls_custom(name: str) -> Callable[[CustomRule], CustomRule]:
    """Register the rule that returns the attributes of the op Custom, without `types`, that ``tfl.name`` calls."""
    return _decorator(lambda rule: _add(_RULES.custom_calls, name, rule, f"the custom op of {name}"))


def ordered_onnx(name: str, **attributes: int) -> None:
    """Register for which attributes the order of the results of ``onnx.name`` is defined."""
    _add(_RULES.ordered, ("", name), attributes, f"the order of {name}")


def upgrade(name: str, since: tuple[int, ...], domain: str = "") -> Callable[[UpgradeRule], UpgradeRule]:
    """Register the rule that rewrites `name` of old since-versions, in place, to the form of its newest lift rule.

    An op without a lift rule is rewritten to the form that its definition as a function computes correctly.
    The rule changes the node's attributes and operands (`node.set_operand`, :func:`append_operand`).
    """

    return _decorator(lambda rule: _add_versions(_RULES.upgrades, _RULES.lift_onnx, (domain, name), since, rule))


@functools.lru_cache(4096)
def rule_name(rule: Any) -> str:
    """Return the name of a rule or rewrite: its module and function; for a row, its module and op."""
    function = getattr(rule, "func", rule)
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__.lstrip('_')}"


def append_operand(node: Node, value: Value | None) -> None:
    """Append `value` to the operands of `node`."""
    node.operands.append(None)
    node.set_operand(len(node.operands) - 1, value)


def lift_tfl(*names: str) -> Callable[[LiftRule], LiftRule]:
    """Register the rule that lifts the tfl ops `names`; quantized operands appear as real values."""

    def add(rule: LiftRule) -> None:
        for name in names:
            _add(_RULES.lift_tfl, name, rule, f"lifting {name}")

    return _decorator(add)


def regions_of(name: str) -> Callable[[PrepareRule], PrepareRule]:
    """Register the rule that prepares the regions of a file's op `name` ("onnx.If") before the op is lifted.

    The rule sets the types of the regions' inputs; a region that it returns, or regions that it yields one after the
    other, replace the node.
    """

    return _decorator(lambda rule: _add(_RULES.regions, name, rule, f"the regions of {name}"))


def carried_by(name: str) -> Callable[[CarriedRule], CarriedRule]:
    """Register the rule that returns the pairs of body inputs and outputs of loop `name` that have equal types.

    The body is lifted again with other input types (the declared ones, else wider ones) until they are equal.
    """

    return _decorator(lambda rule: _add(_RULES.carried, name, rule, f"values carried by {name}"))


def lower_tfl(op: type[Op], rank: int = 0) -> Callable[[LowerTfl], LowerTfl]:
    """Register a TFLite form of `op`; `rank` orders forms of equal cost."""

    return _decorator(lambda rule: _RULES.lower_tfl.setdefault(op, []).append((rank, rule)))


def lower_onnx(op: type[Op], rank: int = 0) -> Callable[[LowerOnnx], LowerOnnx]:
    """Register an ONNX form of `op`; `rank` orders forms of equal cost."""

    return _decorator(lambda rule: _RULES.lower_onnx.setdefault(op, []).append((rank, rule)))


def requires_opset(op: type[Op]) -> Callable[[OpsetRule], OpsetRule]:
    """Register the rule that returns the lowest opset in which a node of `op` can be written; 0 for any."""
    return _decorator(lambda rule: _add(_RULES.opsets, op, rule, f"the opset of {op.name}"))


def lower_quantized(of: str, name: str, domain: str = "") -> Callable[[QuantizedForm], QuantizedForm]:
    """Register how a node on quantized types, whose float op is `of`, is written as the ONNX op `name`."""
    return _decorator(lambda rule: _add(_RULES.lower_quantized, of, (domain, name, rule), f"quantized {of}"))


def decompose(
    op: type[Op],
    target: Target | None = None,
    order: Order = "formula",
    when: Condition | None = None,
    benefit: int = 0,
) -> Callable[[DecomposeRule], DecomposeRule]:
    """Register a rule that replaces nodes of `op` that satisfy `when` if the target accepts no form of them.

    `benefit`: among rules at the same place of the order, the highest is tried first.
    """

    def add(rule: DecomposeRule) -> None:
        known = _RULES.decompose.setdefault(op, {}).setdefault((order, _checked(target)), [])
        if when is None and (plain := [one.rule for one in known if one.when is None and one.benefit == benefit]):
            what = f"decomposing {op.name} for {target or 'any target'} ({order})"
            raise RuleError(f"{what} has two rules: {_listed((*plain, rule))}")
        known.append(Decomposition(rule, when, benefit))

    return _decorator(add)


def _checked(target: Target | None) -> Target | None:
    """`target`; RuleError if there is no such target."""
    names = {"onnx", *(table.rules for table in target_tables().values())}
    if target is not None and target not in names:
        raise RuleError(f"unknown target {target!r}, known: {', '.join(sorted(names))}")
    return target


def decompose_late(op: type[Op], target: Target, when: Condition) -> Callable[[DecomposeRule], DecomposeRule]:
    """Register a decomposition that depends on the axis order, and so runs after layout assignment.

    Until then a node that satisfies `when` counts as legal. The new nodes must not depend on layout. A rule for a
    delegate is one for accepted nodes, and made where it saves time.
    """

    table, what = _RULES.late.setdefault(op, {}), f"decomposing {op.name} late for {target}"
    _checked(target)
    return _decorator(lambda rule: _add(table, target, LateRule(when, rule), what))
