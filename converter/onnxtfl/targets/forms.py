"""Kernel forms: the types, ranks and options for which a kernel was measured to be correct, and violations of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.target import Kind
from onnxtfl.targets.instance import OpInstance, dtypes_of
from onnxtfl.targets.properties import IN_WORDS, OF_LAYOUT, PROPERTIES

Bounds = tuple[int, int]
_HIGHEST = 99
_NOTHING: frozenset[Any] = frozenset()
_MAIN = "T"
_OTHERS = ("broadcast", "scalar", "constant", "required", "quantization", "per_axis")
"""Keys of a form that are not options."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A constraint of a form that an op instance violates. `subject`: the variable, operand or option.

    `allowed`: element types, for kinds "dtype" and "quantization"; `limit`: the highest rank; `values`: of an option;
    `needed`: a sentence on what is accepted instead, where these say too little.
    """

    kind: Kind
    subject: str
    what: str
    found: str
    allowed: frozenset[DType] = frozenset()
    limit: int = 0
    values: frozenset[Any] = frozenset()
    needed: str = ""

    @property
    def wanted(self) -> str:
        """The accepted values, for messages."""
        if self.kind == "rank" or self.limit:
            return str(self.limit)
        names = self.values or {d.value for d in self.allowed}
        return " or ".join(sorted(str(name) or "none" for name in names))

    @property
    def distance(self) -> int:
        """How hard the violation is to repair: ranks can be collapsed, element types cast."""
        return {"rank": 1, "shape": 10, "dtype": 100, "quantization": 100}.get(self.kind, 10_000)

    def joined(self, other: Violation) -> Violation:
        """One violation for two forms: what either form allows is allowed."""
        limit = max(self.limit, other.limit)
        return replace(self, allowed=self.allowed | other.allowed, limit=limit, values=self.values | other.values)


def _wants(wanted: str, subject: str, what: str, found: str) -> Violation:
    """The violation of a constraint on scales and zero points."""
    return Violation("quantization", subject, what, found, values=frozenset({wanted}))


@dataclass(frozen=True)
class KernelForm:
    """Constraints under which a kernel computes correct results.

    `types`: element types by variable. `ranks`: lowest and highest rank by variable. `broadcast`: the highest rank if
    the operands' shapes differ (None: nothing broadcasts); `scalar`: if only operands of one element have another
    shape. `constant`: operands that have to be constant. `options`: values that these options may have. `scales`:
    "same" if all quantized tensors of the main type have to share scale and zero point, "fixed" if the result's are
    given. `per_axis`: variables whose tensors may have a scale for each index of an axis (at least one of them has).
    `required`: optional operands that have to be present. `options` may
    name a property (:mod:`properties`), too.
    """

    types: Mapping[str, frozenset[str]]
    ranks: Mapping[str, Bounds]
    broadcast: int | None
    scalar: int | None
    constant: frozenset[str]
    options: Mapping[str, frozenset[Any]]
    scales: str = ""
    per_axis: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()

    def violations(self, op: OpInstance) -> list[Violation]:
        """All constraints that `op` violates, the hardest to repair first; empty if the form accepts it."""
        found = [*self._options(op), *self._types(op), *self._quantization(op), *self._ranks(op)]
        return sorted(found, key=lambda v: -v.distance)

    def has_types_of(self, op: OpInstance) -> bool:
        """Whether the form has the element types of `op`, whatever else it violates."""
        return not any(self._types(op))

    def _types(self, op: OpInstance) -> Iterator[Violation]:
        for variable, allowed in self.types.items():
            for element in sorted(op.elements.get(variable, _NOTHING) - allowed)[:1]:
                quantized = element.startswith("q")
                taken = dtypes_of(frozenset(n for n in allowed if n.startswith("q") == quantized))
                kind: Kind = "quantization" if quantized else "dtype"
                yield Violation(kind, variable, f"{op.names_of(variable)} of", element, taken)

    def _quantization(self, op: OpInstance) -> Iterator[Violation]:
        for variable, elements in op.elements.items():
            if len(elements) > 1 and any(element.startswith("q") for element in elements):
                yield _wants("one element type", variable, "tensors of", " and ".join(sorted(elements)))
        for variable in sorted(op.per_axis_variables - self.per_axis):
            yield _wants("one scale", variable, f"{op.names_of(variable)} with", "one for each index of an axis")
        if self.per_axis and not self.per_axis & op.per_axis_variables:
            yield _wants("one scale for each index of an axis", min(self.per_axis), "tensors with", "one for all")
        of_blocks = any(q.block is not None for found in op.quantizations.values() for q in found)
        if of_blocks and "blocks" not in self.options:
            yield _wants("one scale for each index of an axis", "", "tensors with", "one for each block")
        for condition in op.bad_scales():
            yield _wants(f"scales with {condition}", "", "tensors with", "others")
        for name in op.asymmetric():
            yield _wants("zero point 0", name, f"{name} with", "another")
        if self.scales == "same" and len(op.quantizations.get(_MAIN, _NOTHING)) > 1:
            yield _wants("one scale and zero point", _MAIN, "tensors with", "several")
        if self.scales == "fixed" and not op.has_fixed_results():
            yield _wants("a fixed scale and zero point", "", "results with", "others")

    def _ranks(self, op: OpInstance) -> Iterator[Violation]:
        for variable, (low, high) in self.ranks.items():
            rank, top, what = op.ranks.get(variable, -1), high, f"ranks {low} to" if low else "ranks up to"
            if variable == _MAIN and self.broadcast is not None and op.broadcasts:
                rank = max(rank, op.highest_rank)
                allowed, how = self._broadcast(op)
                top, what = min(high, allowed), what if rank < low else f"{how} up to rank"
            if rank >= 0 and not low <= rank <= top:
                kind: Kind = "rank" if rank > top else "shape"
                yield Violation(kind, variable, what, str(rank), limit=top)

    def _broadcast(self, op: OpInstance) -> tuple[int, str]:
        """The highest rank for the operands if they broadcast, and how they do."""
        assert self.broadcast is not None
        if op.broadcasts_scalars():
            return max(self.broadcast, self.scalar or 0), "a scalar operand"
        return self.broadcast, "broadcasting"

    def _options(self, op: OpInstance) -> Iterator[Violation]:
        for name in sorted(self.constant):
            if not all(op.is_known(v) for v in op.named(name)):
                yield Violation("other", name, name, "computed", values=frozenset({"constant"}))
        for name in sorted(self.required):
            if not op.named(name):
                yield Violation("other", name, name, "none", values=frozenset({"an operand"}))
        for name, allowed in self.options.items():
            if name in PROPERTIES:
                found = PROPERTIES[name](op) if op.is_laid_out or name not in OF_LAYOUT else None
                if found is not None and found not in allowed:
                    needed = IN_WORDS.get(name, "") if allowed == {True} else ""
                    what = name.replace("_", " ")
                    yield Violation("shape", name, what, str(found), values=allowed, needed=needed)
            elif name in op.options and op.options[name] not in allowed:
                yield Violation("other", name, name, str(op.options[name]), values=allowed)


def read_form(table: Mapping[str, Any]) -> KernelForm:
    """Read a form of the table."""
    types: dict[str, frozenset[str]] = {}
    ranks: dict[str, Bounds] = {}
    options: dict[str, frozenset[Any]] = {}
    for key, value in table.items():
        if key == "rank":
            ranks[_MAIN] = _bounds(value)
        elif key.endswith(".rank"):
            ranks[key.removesuffix(".rank")] = _bounds(value)
        elif key.isupper():
            types[key] = frozenset(value.split())
        elif key not in _OTHERS:
            options[key] = frozenset(value if isinstance(value, list) else [value])
    if "broadcast" in table:
        ranks.setdefault(_MAIN, (0, _HIGHEST))
    names = {key: frozenset(table.get(key, "").split()) for key in ("constant", "per_axis", "required")}
    return KernelForm(
        types,
        ranks,
        table.get("broadcast"),
        table.get("scalar"),
        options=options,
        scales=table.get("quantization", ""),
        **names,
    )


def intersect(a: KernelForm, b: KernelForm) -> KernelForm | None:
    """The form that accepts what both forms accept; None if they have nothing in common."""
    types = _both(a.types, b.types)
    options = _both(a.options, b.options)
    everything = (0, _HIGHEST)
    ranks = {v: _overlap(a.ranks.get(v, everything), b.ranks.get(v, everything)) for v in {**a.ranks, **b.ranks}}
    if not all(types.values()) or not all(options.values()) or any(low > high for low, high in ranks.values()):
        return None
    if bool(a.per_axis) != bool(b.per_axis):
        return None
    broadcast, scalar = _lower(a.broadcast, b.broadcast), _lower(a.scalar or a.broadcast, b.scalar or b.broadcast)
    return KernelForm(
        types,
        ranks,
        broadcast,
        scalar,
        constant=a.constant | b.constant,
        options=options,
        scales=a.scales if b.scales in ("", a.scales) else b.scales,
        per_axis=a.per_axis & b.per_axis,
        required=a.required | b.required,
    )


def _lower(a: int | None, b: int | None) -> int | None:
    return min((x for x in (a, b) if x is not None), default=None)


def _both(a: Mapping[str, frozenset[Any]], b: Mapping[str, frozenset[Any]]) -> dict[str, frozenset[Any]]:
    return {key: a.get(key, b.get(key, frozenset())) & b.get(key, a.get(key, frozenset())) for key in {**a, **b}}


def _overlap(a: Bounds, b: Bounds) -> Bounds:
    return max(a[0], b[0]), min(a[1], b[1])


def _bounds(value: int | str) -> Bounds:
    if isinstance(value, int):
        return 0, value
    low, _, high = value.partition("-")
    return int(low), int(high)
