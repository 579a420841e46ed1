"""TFLite Micro: what its all-ops resolver has, in forms that LiteRT computes correctly too."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import Form
from onnxtfl.rewriting.target import Refusal
from onnxtfl.targets.table import MICRO, MicroEntry, entry, micro_entry, op_names
from onnxtfl.targets.tflite import TfliteTarget


class MicroTarget(TfliteTarget):
    """TFLite Micro, and the TFLite runtimes from `min_runtime` on, so that a result can be tried in both.

    Which forms its kernels compute correctly is in ``schemas/tflite_micro.toml``.
    """

    title = "TFLite Micro"
    chain = ("micro", *TfliteTarget.chain)
    has_open_sizes = False
    has_uint8_kernels = False
    has_hybrid_kernels = False
    has_int64 = False
    has_float16 = False

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The measured runtimes on which a form has to be correct."""
        return (*super().runtimes, MICRO)

    def refusal(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        known = micro_entry(form.op)
        if form.op in op_names() and known is None:
            return Refusal("op", f"TFLite Micro has no op {form.op}")
        if known is not None and (violation := _violation(form, known)) is not None:
            return Refusal("other", f"{form.op} {violation}")
        return super().refusal(form, results)

    def advice(self, node: Node) -> str | None:
        return "cut the model before it (`outputs`) and compute the rest in your own code, or make its sizes constant"

    def fuses(self, activation: str, op: str) -> bool:
        known = micro_entry(op)
        return known is not None and activation in known.activations and super().fuses(activation, op)


def _violation(form: Form, known: MicroEntry) -> str | None:
    """What the kernel does not accept of the operands and options of `form`; None if it accepts them."""
    if known.most_values is not None and len(form.operands) > known.most_values:
        return f"accepts at most {known.most_values} operands, not {len(form.operands)}"
    names = [operand.name for operand in entry(form.op).operands]
    present = {name for name, value in zip(names, form.operands, strict=False) if value is not None}
    if missing := next((name for name in known.needed if name not in present), None):
        return f"needs the operand {missing}"
    if unread := next((name for name in known.absent if name in present), None):
        return f"has no operand {unread}"
    for name, value in known.only.items():
        if form.attributes.get(name, value) != value:
            return f"accepts {name} {value} only, not {form.attributes[name]}"
    return None
