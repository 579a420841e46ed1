"""TFLite Micro: what its all-ops resolver has, in forms that LiteRT computes correctly too."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.graph import Value
from onnxtfl.rewriting.registry import Form
from onnxtfl.rewriting.target import Refusal
from onnxtfl.targets.table import MICRO, micro_entry, op_names
from onnxtfl.targets.tflite import TfliteTarget


class MicroTarget(TfliteTarget):
    """TFLite Micro, and the TFLite runtimes from `min_runtime` on, so that a result can be tried in both.

    Which forms its kernels compute correctly is in ``schemas/tflite_micro.toml``.
    """

    title = "TFLite Micro"
    has_open_sizes = False
    has_uint8_kernels = False
    has_int64 = False

    @property
    def runtimes(self) -> tuple[str, ...]:
        """The measured runtimes on which a form has to be correct."""
        return (*super().runtimes, MICRO)

    def refusal(self, form: Form, results: Sequence[Value]) -> Refusal | None:
        known = micro_entry(form.op)
        if form.op in op_names() and known is None:
            return Refusal("op", f"TFLite Micro has no op {form.op}")
        if known is not None and known.most_values is not None and len(form.operands) > known.most_values:
            found = f"{known.most_values} operands, not {len(form.operands)}"
            return Refusal("other", f"{form.op} accepts at most {found}")
        return super().refusal(form, results)

    def fuses(self, activation: str, op: str) -> bool:
        known = micro_entry(op)
        return known is not None and activation in known.activations and super().fuses(activation, op)
