"""Joins the lowering rules with a target's tables: which form of a node the target takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.builder import Operand
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.passes.floats import compute_in_float32
from onnxtfl.passes.fuse_activations import fuse_activations
from onnxtfl.rewriting.registry import Form, rules
from onnxtfl.rewriting.registry import Target as TargetName
from onnxtfl.targets import Refusal
from onnxtfl.targets.onnxruntime import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget

Step = tuple[str, Callable[[Graph], None]]
"""A pass and its name. `first` and `last` are those that one target alone needs, around the common ones."""


class TflSelection:
    """Forms for TFLite runtimes."""

    name: TargetName = "tfl"
    channels_last = True
    first: Sequence[Step] = (("floats", compute_in_float32),)
    last: Sequence[Step] = (("activations", fuse_activations),)

    def __init__(self, target: TfliteTarget) -> None:
        self.target = target
        self.title = "TFLite"

    def forms(self, node: Node) -> Sequence[Form]:
        """The TFLite forms that the rules offer, best first."""
        return [form for rule in rules().lower_tfl.get(node.op, ()) if (form := rule(node)) is not None]

    def refuses(self, node: Node, form: Form) -> Refusal | None:
        """What the kernel table says against `form`."""
        return self.target.refusal(form.op, as_values(form), given(node, form), form.attributes)

    def version(self, node: Node, form: Form) -> int:
        """The lowest op version that means `form`."""
        return self.target.op_version(form.op, as_values(form), given(node, form), form.attributes)

    def attributes(self, form: Form) -> Mapping[str, Any]:
        """The fields of the options table."""
        return form.attributes


class OnnxSelection:
    """Forms for ONNX at one opset."""

    name: TargetName = "onnx"
    channels_last = False
    first: Sequence[Step] = ()
    last: Sequence[Step] = ()

    def __init__(self, target: OnnxTarget) -> None:
        self.target = target
        self.title = f"ONNX opset {target.opset}"

    def forms(self, node: Node) -> Sequence[Form]:
        """The ONNX forms that the rules offer, best first."""
        rows = rules().lower_onnx.get(node.op, ())
        return [form for rule in rows if (form := rule(node, self.target.opset)) is not None]

    def refuses(self, node: Node, form: Form) -> Refusal | None:
        """What the op's schema at this opset says against `form`."""
        return self.target.refusal(form.op, as_values(form), given(node, form), form.attributes, form.domain)

    def version(self, node: Node, form: Form) -> int:
        """The since-version at this opset."""
        return self.target.op_version(form.op, form.domain)

    def attributes(self, form: Form) -> Mapping[str, Any]:
        """The attributes that are written."""
        return form.attributes


def given(node: Node, form: Form) -> list[Value]:
    """The node's results in the order of the form's."""
    return list(node.results) if form.results is None else [node.results[i] for i in form.results]


def as_values(form: Form) -> list[Value | None]:
    """The form's operands, arrays and lists as constants."""
    return [_as_value(operand) for operand in form.operands]


def _as_value(operand: Operand) -> Value | None:
    if operand is None or isinstance(operand, Value):
        return operand
    if isinstance(operand, TensorData):
        return constant(operand)
    return constant(np.asarray(operand))
