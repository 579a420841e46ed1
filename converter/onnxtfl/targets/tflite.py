"""TFLite runtimes as targets: the forms that kernels compute correctly, and the op versions that nodes need.

Everything is read from ``schemas/tflite_ops.toml``, and the table of the target in ``schemas/targets/``; no fact about
a kernel is written in code.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType
from onnxtfl.ir.whole_rows import OPTION, are_whole_rows, rounds_to_steps
from onnxtfl.rewriting.registry import Form, rules_for
from onnxtfl.rewriting.target import Kind, Refusal
from onnxtfl.schemas.sections import section
from onnxtfl.schemas.target_tables import FEATURES, ROOT, target_tables
from onnxtfl.targets.forms import KernelForm, Violation, intersect, read_form
from onnxtfl.targets.instance import OpInstance, dtypes_of, is_half_constant
from onnxtfl.targets.narrowed import refusal_by
from onnxtfl.targets.table import (
    MEASURED,
    Costs,
    OpEntry,
    Release,
    Version,
    entry,
    fails_without_rows,
    narrowed,
    op_names,
)
from onnxtfl.targets.target import Target, operands_of, results_of
from onnxtfl.targets.terms import holds, reads_producers, within

LITERT_RELEASES: Mapping[str, Release] = {
    "litert-1.0": (2, 18),
    "litert-1.1": (2, 19),
    "litert-1.2": (2, 19),
    "litert-1.3": (2, 20),
    "litert-1.4": (2, 20),
    "litert-2.0": (2, 20),
    "litert-2.1": (2, 21),
    "litert-2.2": (2, 22),
    "litert-2.3": (2, 23),
}
"""LiteRT's releases, and the TensorFlow releases with the same op versions (2.3 is the measured one)."""
OLDEST: Release = (2, 14)
"""The oldest release whose kernels were measured."""
MEASURED_LITERT: Release = (2, 23)
"""From this release on, only the measured LiteRT has to compute a form correctly; before, tflite-runtime 2.14 too."""


Fault = Literal["abort", "wrong"]
"""What a runtime does with a form, without saying so: it ends the process, or computes wrong values."""
_CONDITIONS = ("limits", "correct", "safe")
"""The keys of the conditions under which a target accepts an op."""


class TfliteTarget(Target):
    """A TFLite runtime and all later ones, or a target derived from them.

    `min_runtime`: a release of TensorFlow or tflite-runtime ("2.14", the default: forms that both LiteRT and
    tflite-runtime 2.14 compute correctly), or one of LiteRT ("litert-2.3": forms that LiteRT computes correctly).
    Raises UsageError for other text. `release`: `min_runtime` in TensorFlow's numbering. `hybrid`: kernels that
    quantize activations are accepted. `table`: the target's name in ``schemas/targets/``. `fallback`: the target that
    runs the ops that this one does not accept; None if these are errors. `delegate`: what the runtime's delegate
    computes; None if there is none. `on_cpu`: it is TFLite, unless the table names
    another.
    """

    name = "tfl"
    channels_last = True
    shares_inputs = False
    longest_axis = (1 << 31) - 1
    free_rank = 4  # LiteRT's GPU accelerator has no more axes, and RESHAPE takes no time on CPUs

    def __init__(
        self, min_runtime: str = "2.14", *, hybrid: bool = False, table: str = ROOT, on_cpu: bool = False
    ) -> None:
        super().__init__()
        self.table = target_tables()[table]
        self.title = self.table.title
        fallback = self.table.fallback or (ROOT if on_cpu and self.table.parent is not None else None)
        self.fallback = TfliteTarget(min_runtime, hybrid=hybrid, table=fallback) if fallback else None
        self.delegate = TfliteTarget(min_runtime, table=self.table.delegate) if self.table.delegate else None
        self.delegate_chain = (self.delegate.table.rules,) if self.delegate else ()
        self.leaving = self.delegate.table.leaving if self.delegate else 1.0
        self.crossing = self.delegate.table.crossing if self.delegate else 0.0
        own, wider = tuple(known.rules for known in self.table.chain), self.fallback.chain if self.fallback else ()
        self.own_chain = tuple(name for name in own if name not in wider) if wider else ()
        self.chain = (*self.own_chain, *wider) if wider else own
        has = {name: name not in self.table.lacks for name in FEATURES}
        self.has_open_sizes, self.has_int64, self.has_float16 = has["open_sizes"], has["int64"], has["float16"]
        self.has_uint8_kernels, self.has_hybrid_kernels = has["uint8_kernels"], has["hybrid_kernels"]
        self.has_integer_ops, self.is_real = has["quantized"], not has["quantized"]
        self.most_axes = None if self.fallback else self.table.most_axes
        self.compares_costs = not self.table.own_arithmetic
        self.reads_values = self.table.parent is not None
        self.hybrid = hybrid
        self._fallbacks: dict[Hashable, bool] = {}
        self._outer_conditions: dict[str, list[str]] = {}
        lowest = self.table.min_runtime or min_runtime
        self.min_runtime = max(min_runtime, lowest, key=_release)
        self.release = _release(self.min_runtime)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The measured runtimes in which a form has to be correct."""
        return (*(("litert",) if self.release >= MEASURED_LITERT else MEASURED), *self.table.narrowed)

    def forms(self, node: Node) -> Sequence[Form]:
        return rules_for(node.op).tfl_forms(node)

    def operand_name(self, node: Node, index: int) -> str | None:
        """The name in the table of ops; None for custom ops and variadic operands."""
        name = node.op.name_in_file
        operands = entry(name).operands if name in op_names() else ()
        return operands[index].name if index < len(operands) and not operands[index].variadic else None

    def fixed_quantization(self, form: Form, storage: str) -> Quantization | None:
        """The required scale and zero point of the result, from the table of ops."""
        fixed = entry(form.op).fixed_results.get(f"q{storage}") if form.op in op_names() else None
        return None if fixed is None else Quantization(storage, (float(fixed[0]),), (int(fixed[1]),))

    @functools.cached_property
    def saturated_steps(self) -> float | None:
        bits = entry("QUANTIZE").saturated_bits
        return None if bits is None else 2.0 ** (bits - 1)

    @functools.cached_property
    def factor_bits(self) -> int | None:
        return entry("QUANTIZE").factor_bits

    def bound(self, form: Form, results: Sequence[Value]) -> OpInstance | None:
        known = form.op in op_names()
        if not known:
            return None
        what = {"is_laid_out": self.is_laid_out, "widens": self.table.widens}
        return OpInstance(entry(form.op), operands_of(form), results, form.attributes, **what)

    def key_of(self, node: Node, form: Form) -> tuple[Hashable, ...]:
        """The key of the base class, with the conditions that depend on the producers of the operands."""
        key = super().key_of(node, form)
        if _may_keep_activations(form) and (known := self.bound(form, results_of(node, form))) is not None:
            key = (*key, _keeps_activations(known))
        conditions = self._outer_conditions.get(form.op)
        if conditions is None:
            conditions = self._outer_conditions[form.op] = self._find_outer_conditions(form.op)
        instance = self.bound(form, results_of(node, form)) if conditions else None
        return key if instance is None else (*key, *(within(c, instance) for c in conditions))

    def _find_outer_conditions(self, op: str) -> list[str]:
        """The conditions for an op that depend on the ops around it, in the tables of the target and its parents."""
        tables = self.table.chain[:-1] if op in op_names() else ()
        found = (getattr(narrowed(table.name, op), key) for table in tables for key in (*_CONDITIONS, "preferred"))
        return [condition for conditions in found for condition in conditions if reads_producers(condition)]

    def costs(self, form: Form) -> Costs:
        return entry(form.op).costs if form.op in op_names() else {}

    def advice(self, node: Node) -> str | None:
        return rules_for(node.op).only_onnx.get(node.op, self.table.advice)

    def refusal(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        refused = self.own_refusal(form, results)
        if refused is None:
            return self._outside(("preferred",), form, results)
        if self.fallback is None or self.fault(form, results) is not None:
            return refused  # what the target takes does not fall back, even if it is wrong
        return self._outside(("safe",), form, results) or self.fallback.refusal(form, results)

    def falls_back(self, node: Node, form: Form) -> bool:
        if self.fallback is None:
            return False
        key = self.key_of(node, form)
        if key not in self._fallbacks:
            self._fallbacks[key] = self.own_refusal(form, results_of(node, form)) is not None
        return self._fallbacks[key]

    def delegates(self, node: Node, form: Form) -> bool:
        return self.delegate is None or self.delegate.refuses(node, form) is None

    def fails_without_rows(self, form: Form) -> bool:
        return form.op in op_names() and fails_without_rows(form.op)

    def is_faster_in_float(self, node: Node, form: Form) -> bool:
        if self.delegate is None or not self.compares_costs:
            return False
        slow = narrowed(self.delegate.table.name, form.op).faster_in_float
        stored = {f"q{q.storage}" for r in results_of(node, form) if (q := quantization_of(r)) is not None}
        return not slow.isdisjoint(stored) and not self.delegates(node, form) and not self._will_be_fused(node, form)

    def _will_be_fused(self, node: Node, form: Form) -> bool:
        """Whether this is an activation that the op before it takes in."""
        name, value = fused_activation_of(form.op), node.operand(0)
        if name is None or value.producer is None or len(value.uses) > 1 or value.type != node.result.type:
            return False
        before = self.accepted(value.producer)
        return before is not None and self.fuses(name, before.op)

    def own_refusal(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        """Why the target does not accept `form`, although its fallback may; None if it does."""
        for table in self.table.chain if form.op in op_names() else ():
            if (refused := refusal_by(table, form)) is not None:
                return refused
        if form.own_version is not None:
            return None
        op, instance = form.op, self.bound(form, results)
        if instance is None:
            return Refusal("op", f"TFLite has no op {op}")
        if self.table.widens and op == "DEQUANTIZE" and is_half_constant(instance.operands[0][2]):
            return None
        if (large := self._largest_constant(instance)) is not None:
            return Refusal("other", f"{op} accepts integer constants up to {self.table.largest_integer}, not {large}")
        known = instance.entry
        if not known.versions or known.versions[0].since > (*self.release, 99):
            return Refusal("op", f"the runtime {self.min_runtime} has no kernel for {op}")
        if not self.table.own_arithmetic and (
            coarse := {f"q{q.storage}" for r in results if (q := quantization_of(r)) is not None} & known.interpolated
        ):
            return Refusal("quantization", f"{op} of {min(coarse)} interpolates, several steps off")
        if known.drops_axes and (limit := _rank_beside_one_element(instance)) is not None:
            return Refusal("rank", f"{op} drops the leading axes of a constant of one element", limit=limit)
        violations = []
        hybrid = _forms(op, self.runtimes, hybrid=True) if self.hybrid or _keeps_activations(instance) else ()
        for kernel in (*_forms(op, self.runtimes), *hybrid):
            if not (found := kernel.violations(instance)):
                return self._too_new(known, instance) or self._outside(_CONDITIONS, form, results)
            violations.append(found)
        if not violations:
            where = self.title if self.table.narrowed else " and ".join(self.runtimes)
            return Refusal("op", f"no form of {op} computes correct values in {where}")
        return _explain(instance, violations)

    def fault(self, form: Form, results: Sequence[Value]) -> Fault | None:
        """What the runtime does with a form that it takes although the target does not accept it; None if it refuses
        the form, or if that was not measured.
        """
        instance = self.bound(form, results)
        if instance is None:
            return None
        for table in self.table.chain[:-1]:
            taken = (fault for fault, row in _faults(table.name, form.op) if not row.violations(instance))
            if (fault := next(taken, None)) is not None:
                return fault
        if self._largest_constant(instance) is not None or self._outside(("correct",), form, results) is not None:
            return "wrong"
        return None

    def unusual(self, op: str) -> Sequence[str]:
        """The operands of an op, like "nan in lhs", of which the target computes other values than NumPy."""
        rows = (row for table in self.table.chain[:-1] for row in narrowed(table.name, op).unusual)
        return [str(row["operands"]) for row in rows]

    def steps_off(self, form: Form, results: Sequence[Value]) -> int:
        instance = self.bound(form, results)
        return 0 if instance is None else steps_off(instance, self.runtimes)

    def unmeasured_fault(self, form: Form) -> str:
        known = entry(form.op) if form.op in op_names() else None
        if known is None or not known.unread_zero or self.release >= _numbers(known.unread_zero["read_from"]):
            return ""
        named = zip(known.operands, operands_of(form), strict=False)
        read = next((v for o, v in named if v is not None and o.name == known.unread_zero["operand"]), None)
        quantization = None if read is None else quantization_of(read)
        if quantization is None or quantization.storage != "int8" or not any(quantization.zero_points):
            return ""
        return f"{known.unread_zero['by']} leaves out the zero point of int8 weights"

    def op_version(self, form: Form, results: Sequence[Value]) -> int:
        if form.own_version is not None:
            return form.own_version
        return _version(OpInstance(entry(form.op), operands_of(form), results, form.attributes))

    def fuses(self, activation: str, op: str) -> bool:
        """Whether `activation` may be the fused_activation_function of `op`."""
        if op not in op_names():
            return False
        tables = (*self.table.narrowed, *(self.fallback.table.narrowed if self.fallback else ()))
        applied = (entry(op).activations, *(narrowed(name, op).activations for name in tables))
        return all(known is None or activation in known for known in applied)

    def _outside(self, keys: Sequence[str], form: Form, results: Sequence[Value]) -> Refusal | None:
        """The first of the conditions with these keys in the tables that does not hold."""
        for table in self.table.chain[:-1] if form.op in op_names() else ():
            known = narrowed(table.name, form.op)
            conditions = [(condition, key) for key in keys for condition in getattr(known, key)]
            instance = self.bound(form, results) if conditions else None
            failed = next(((c, key) for c, key in conditions if instance is not None and not within(c, instance)), None)
            if failed is not None:
                condition, key = failed
                kind: Kind = "distinct" if condition.endswith(" distinct") else "other"
                what = f"{form.op} is correct" if key == "correct" else f"{table.title} runs {form.op}"
                return Refusal(kind, f"{what} only with {condition}")
        return None

    def _largest_constant(self, instance: OpInstance) -> int | None:
        """The largest integer of constant operands, if it is too large for the target."""
        limit = self.table.largest_integer
        if limit is None:
            return None
        known = (v for _, p, v in instance.operands if p.variable == instance.main and v.is_constant)
        integers = (v.numpy().astype(np.int64) for v in known if v.dtype is DType.INT32 and not v.is_quantized)
        largest = max((int(np.abs(found).max(initial=0)) for found in integers), default=0)
        return largest if largest > limit else None

    def _too_new(self, known: OpEntry, instance: OpInstance) -> Refusal | None:
        """Refuse an op version that only later runtimes have."""
        later = [v for v in known.versions if v.since[:2] > self.release and _is_needed(v, instance)]
        if not later:
            return None
        number, release = _version(instance), ".".join(map(str, max(version.since for version in later)))
        return Refusal("op", f"{known.name} version {number} needs runtime {release}, not {self.min_runtime}")


def _rank_beside_one_element(instance: OpInstance) -> int | None:
    """The highest rank of the other operands (at least 1), if a constant of one element has more axes and the kernel
    drops these.
    """
    stored = {f"q{q.storage}" for _, _, v in instance.results if (q := quantization_of(v)) is not None}
    values = [v for _, _, v in instance.operands]
    if not stored & instance.entry.drops_axes or any(v.tensor_type.shape is None for v in values):
        return None
    single = [v for v in values if v.is_constant and product(v.shape) == 1]
    others = max((v.rank for v in values if v not in single), default=None)
    return None if others is None or all(v.rank <= others for v in single) else max(others, 1)


def _release(min_runtime: str) -> Release:
    """`min_runtime` in TensorFlow's numbering; UsageError if there is no such runtime."""
    if min_runtime in LITERT_RELEASES:
        return LITERT_RELEASES[min_runtime]
    found = _numbers(min_runtime)[:2] if re.fullmatch(r"\d+(\.\d+)+", min_runtime) else (0, 0)
    if not OLDEST <= found <= MEASURED_LITERT:
        first, *_, last = LITERT_RELEASES
        hint = f"use {_dotted(OLDEST)} to {_dotted(MEASURED_LITERT)} (TensorFlow's numbers), or {first} to {last}"
        raise UsageError(f"`min_runtime` cannot be {min_runtime!r}", hint=hint)
    return found


def _numbers(release: str) -> Release:
    return tuple(map(int, release.split(".")))


def _dotted(release: Release) -> str:
    return ".".join(map(str, release))


def _version(instance: OpInstance) -> int:
    return max((version.number for version in _needed(instance)), default=1)


def _needed(instance: OpInstance) -> list[Version]:
    """The first version and those whose conditions hold; empty for an op without versions."""
    first, later = instance.entry.versions[:1], instance.entry.versions[1:]
    return [*first, *(version for version in later if _is_needed(version, instance))]


def _is_needed(version: Version, instance: OpInstance) -> bool:
    """Whether a condition of `version` holds."""
    return any(all(holds(term, instance) for term in condition) for condition in version.conditions)


def _may_keep_activations(form: Form) -> bool:
    """Whether `form` may be one of whose kernels `_keeps_activations` is true."""
    operands = operands_of(form)
    return rounds_to_steps(form.attributes.get(OPTION), operands[1] if len(operands) > 1 else None)


def _keeps_activations(instance: OpInstance) -> bool:
    """Whether a kernel that quantizes activations at run time leaves those of this op as they are."""
    option, operands = instance.options.get(OPTION), [value for _, _, value in instance.operands]
    rounds = rounds_to_steps(option, operands[1] if len(operands) > 1 else None)
    return rounds and are_whole_rows(operands[0], axis=None if option is None else -1)


@functools.cache
def _forms(op: str, runtimes: tuple[str, ...], *, hybrid: bool = False) -> tuple[KernelForm, ...]:
    tables = (found for runtime in runtimes if (found := _tables(op, runtime, hybrid=hybrid)) is not None)
    first, *others = ([read_form(table) for table in found] for found in tables)
    for other in others:
        if other != first:
            first = [form for a in first for b in other if (form := intersect(a, b)) is not None]
    return tuple(first)


def _tables(op: str, runtime: str, *, hybrid: bool) -> Sequence[Mapping[str, Any]] | None:
    """The forms of the kernels of a runtime or target, as in its table; None if it has those of its parent."""
    if runtime in MEASURED:
        return (entry(op).hybrid if hybrid else entry(op).kernels)[runtime]
    known = narrowed(runtime, op)
    return known.hybrid if hybrid else known.kernels


def _explain(instance: OpInstance, violations: Sequence[Sequence[Violation]]) -> Refusal:
    """The refusal by the nearest form: one with a wrong rank is nearer than one with a wrong type or a wrong option."""
    nearest = min(sum(v.distance for v in found) for found in violations)
    first, *others = (found[0] for found in violations if sum(v.distance for v in found) == nearest)
    same = [v for v in others if (v.kind, v.subject) == (first.kind, first.subject)]
    violation = functools.reduce(Violation.joined, same, first)
    message = f"{instance.entry.name} accepts {violation.what} {violation.wanted}, not {violation.found}"
    if violation.needed:
        message = f"{instance.entry.name} accepts only {violation.needed}"
    elif not violation.wanted:
        kind = "quantized" if violation.kind == "quantization" else violation.found
        message = f"{instance.entry.name} has no {kind} kernel"
    found = dtypes_of(frozenset({violation.found})) if violation.kind == "dtype" else frozenset()
    return Refusal(violation.kind, message, violation.allowed, violation.limit, found)


def refuse_unknown_versions(graph: Graph) -> None:
    """Raise UnsupportedError for an op of a newer version than in the table: its meaning may be different."""
    for node in graph.walk():
        name = node.op.name_in_file
        if node.op.dialect != "tfl" or name not in op_names() or not (versions := entry(name).versions):
            continue
        if node.op.version > versions[-1].number:
            message = f"this version of the op is not supported (supported: 1 to {versions[-1].number})"
            raise UnsupportedError(message, node=node.shown_name, op=name, version=node.op.version, code="E-OP-003")


def lowest_runtime(graph: Graph) -> str:
    """The lowest TensorFlow release ("2.14.0") with all op versions of a graph; "" if none is known."""
    found: set[Release] = set()
    for name, version in {(node.op.name_in_file, node.op.version) for node in graph.walk()}:
        known = entry(name).versions if name in op_names() else ()
        found.update(sorted(v.since for v in known if v.number == version)[:1])
    return _dotted((*max(found), 0, 0)[:3]) if found else ""


def steps_off(instance: OpInstance, runtimes: Sequence[str] = MEASURED) -> int:
    """The largest error of the quantized results of an op, in steps; 0 if all are the nearest steps."""
    rows = _inexact_forms(instance.entry.name, tuple(runtimes))
    return max((steps for form, steps in rows if form.has_types_of(instance)), default=0)


@functools.cache
def unusual_operands(op: str, kernels: str) -> tuple[str, ...]:
    """The operands, like "nan in lhs", of which a kernel set of LiteRT computes other values than NumPy."""
    rows = section(f"{op}.unusual").get("rows", ()) if op in op_names() else ()
    return tuple(row["operands"] for row in rows if {kernels, "all"}.intersection(row["kernels"].split()))


@functools.cache
def _faults(table: str, op: str) -> tuple[tuple[Fault, KernelForm], ...]:
    """The forms that a target takes although they end the process or are wrong."""
    rows = narrowed(table, op).faults
    return tuple((row["verdict"], read_form({k: v for k, v in row.items() if k != "verdict"})) for row in rows)


@functools.cache
def _inexact_forms(op: str, runtimes: tuple[str, ...]) -> tuple[tuple[KernelForm, int], ...]:
    """The forms that a kernel set of `runtimes` does not compute exactly, and their errors in steps."""
    found = []
    others = (narrowed(name, op).inexact for name in runtimes if name not in MEASURED)
    for row in (*entry(op).inexact, *(row for rows in others for row in rows)):
        kernels = row.get("kernels", runtimes)
        if any(k.split()[0] in runtimes for k in ([kernels] if isinstance(kernels, str) else kernels)):
            form = read_form({key: value for key, value in row.items() if key not in ("kernels", "steps")})
            found.append((form, int(row["steps"])))
    return tuple(found)


def fused_activation_of(op: str) -> str | None:
    """The fused_activation_function that computes the op `op`; None if there is none."""
    return entry(op).fuses_as if op in op_names() else None


def has_quantized_kernel(op: str, storage: str, runtimes: Sequence[str] = ("litert",)) -> bool:
    """Whether each of `runtimes` has a correct kernel of `op` for tensors stored as `storage`."""
    if op not in op_names():
        return False
    forms = _forms(op, tuple(runtimes))
    return any(f"q{storage}" in elements for form in forms for elements in form.types.values())
