"""What a TFLite runtime accepts: which forms its kernels compute correctly, and the op version that a node needs.

Everything is read from ``schemas/tflite_ops.toml``; no fact about a kernel is written in code.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from onnxtfl.errors import UnsupportedError, UsageError
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.rewriting.registry import Form, rules
from onnxtfl.targets.conditions import holds
from onnxtfl.targets.forms import KernelForm, Violation, intersect, read_form
from onnxtfl.targets.instance import BoundOp, OpInstance
from onnxtfl.targets.refusal import Refusal
from onnxtfl.targets.table import CostRow, OpEntry, Release, entry, op_names, parse_release
from onnxtfl.targets.target import Target, operands_of

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
"""LiteRT's own releases, and the TensorFlow releases whose op versions they have (2.3: measured)."""
MEASURED_LITERT: Release = (2, 23)
"""From this release on, a target is the LiteRT that was measured; before it, tflite-runtime 2.14 has to agree."""


class TfliteTarget(Target):
    """A TFLite runtime and every later one.

    `min_runtime`: a TensorFlow or tflite-runtime release ("2.14", the default: what LiteRT and tflite-runtime 2.14 both
    compute correctly), or one of LiteRT's ("litert-2.3": what LiteRT computes correctly). Raises UsageError for other
    text. `release`: `min_runtime` in TensorFlow's numbering.
    """

    name = "tfl"
    channels_last = True
    shares_inputs = False
    title = "TFLite"

    def __init__(self, min_runtime: str = "2.14") -> None:
        super().__init__()
        self.min_runtime = min_runtime
        self.release = _release(min_runtime)

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The measured runtimes on which a form has to be correct."""
        return ("litert",) if self.release >= MEASURED_LITERT else ("2.14", "litert")

    def forms(self, node: Node) -> Sequence[Form]:
        """The TFLite forms that the rules offer for `node`."""
        return rules().tfl_forms(node)

    def refusal_of(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        """What the kernel table says against `form`."""
        return self.refusal(form.op, operands_of(form), results, form.attributes)

    def version_of(self, form: Form, results: Sequence[Value]) -> int:
        """The lowest version of the op that means `form`."""
        return self.op_version(form.op, operands_of(form), results, form.attributes)

    def bound(self, form: Form, results: Sequence[Value]) -> BoundOp | None:
        """`form` with its operands and results bound to the op's signature; None where TFLite has no such op."""
        known = form.op in op_names()
        return OpInstance(entry(form.op), operands_of(form), results, form.attributes) if known else None

    def costs(self, form: Form) -> Sequence[CostRow]:
        """What was measured with LiteRT."""
        return entry(form.op).costs if form.op in op_names() else ()

    def refusal(
        self, op: str, operands: Sequence[Value | None], results: Sequence[Value], options: Mapping[str, Any]
    ) -> Refusal | None:
        """Why the target does not accept this op, and what it would accept; None where it does."""
        if op not in op_names():
            return Refusal("op", f"TFLite has no op {op}")
        known = entry(op)
        if not known.versions or known.versions[0].since > (*self.release, 99):
            return Refusal("op", f"the runtime {self.min_runtime} has no kernel for {op}")
        instance = OpInstance(known, operands, results, options)
        violations = []
        for form in _forms(op, self.runtimes):
            if not (found := form.violations(instance)):
                return self._too_new(known, instance)
            violations.append(found)
        if not violations:
            return Refusal("op", f"no form of {op} computes right numbers in {' and '.join(self.runtimes)}")
        return _explain(instance, violations)

    def op_version(
        self, op: str, operands: Sequence[Value | None], results: Sequence[Value], options: Mapping[str, Any]
    ) -> int:
        """The lowest version of `op` that means this node; KeyError where TFLite has no such op."""
        known = entry(op)
        return _version(known, OpInstance(known, operands, results, options))

    def _too_new(self, known: OpEntry, instance: OpInstance) -> Refusal | None:
        if all(version.since[:2] <= self.release for version in known.versions):
            return None
        number = _version(known, instance)
        since = next(version.since for version in known.versions if version.number == number)
        if since[:2] <= self.release:
            return None
        release = ".".join(map(str, since))
        return Refusal("op", f"{known.name} version {number} needs runtime {release}, not {self.min_runtime}")


def _release(min_runtime: str) -> Release:
    """`min_runtime` in TensorFlow's numbering; UsageError where no runtime is called so."""
    if min_runtime in LITERT_RELEASES:
        return LITERT_RELEASES[min_runtime]
    try:
        return parse_release(min_runtime)[:2]
    except ValueError as error:
        known = f"'2.14', ..., or one of {', '.join(LITERT_RELEASES)}"
        raise UsageError(f"no TFLite runtime is called {min_runtime!r}", hint=f"use {known}") from error


def _version(known: OpEntry, instance: OpInstance) -> int:
    if not known.versions:
        return 1
    first, *later = known.versions
    needed = (v.number for v in later if any(all(holds(t, instance) for t in c) for c in v.conditions))
    return max(needed, default=first.number)


@functools.cache
def _forms(op: str, runtimes: tuple[str, ...]) -> tuple[KernelForm, ...]:
    kernels = entry(op).kernels
    first, *others = ([read_form(table) for table in kernels[runtime]] for runtime in runtimes)
    for other in others:
        if other != first:
            first = [form for a in first for b in other if (form := intersect(a, b)) is not None]
    return tuple(first)


def _explain(instance: OpInstance, violations: Sequence[Sequence[Violation]]) -> Refusal:
    """The refusal of the form that is nearest to being accepted: wrong rank before wrong type before wrong option."""
    nearest = min(sum(v.distance for v in found) for found in violations)
    first, *others = (found[0] for found in violations if sum(v.distance for v in found) == nearest)
    same = [v for v in others if (v.kind, v.subject) == (first.kind, first.subject)]
    violation = functools.reduce(Violation.joined, same, first)
    operands, results = instance.indices(violation.subject)
    message = f"{instance.entry.name} takes {violation.what} {violation.wanted}, not {violation.found}"
    return Refusal(violation.kind, message, violation.allowed, violation.limit, operands, results)


def refuse_unknown_versions(graph: Graph) -> None:
    """UnsupportedError for an op of a newer version than the table knows: what that added might be overlooked."""
    for node in graph.walk():
        name = node.op.name.partition(".")[2]
        if node.op.dialect != "tfl" or name not in op_names() or not (versions := entry(name).versions):
            continue
        if node.op.version > versions[-1].number:
            place = node.name or next((r.name for r in node.results), None)
            message = f"this version of the op is not known (known: 1 to {versions[-1].number})"
            raise UnsupportedError(message, node=place, op=name, version=node.op.version)


def fused_activation_of(op: str) -> str | None:
    """The fused_activation_function that means the activation `op`; None where `op` is no activation or has none."""
    return entry(op).fuses_as if op in op_names() else None


def fuses_into(activation: str, op: str) -> bool:
    """Whether kernels of `op` apply the fused_activation_function of that name."""
    return op in op_names() and activation in entry(op).activations
