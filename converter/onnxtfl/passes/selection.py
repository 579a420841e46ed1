"""Joins the lowering rules with a target's tables: which form of a node the target takes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from onnxtfl.ir.builder import Operand
from onnxtfl.ir.data import Array, TensorData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.passes.canonicalize import MOVES
from onnxtfl.passes.floats import compute_in_float32
from onnxtfl.passes.fuse_activations import fuse_activations
from onnxtfl.passes.recognize import recognize
from onnxtfl.passes.shared_memory import keep_memory_apart
from onnxtfl.passes.vectors import CONVERSIONS, VECTORS
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.rewriting.registry import Form, rules
from onnxtfl.rewriting.registry import Target as TargetName
from onnxtfl.targets import Refusal
from onnxtfl.targets.onnxruntime import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget

Step = tuple[str, Callable[[Graph], None]]
"""A pass and its name. `first` and `last` are those that one target alone needs, around the common ones.

`moves`: the forms of ops that only move numbers, which its kernels take like any other.
"""


class TflSelection:
    """Forms for TFLite runtimes."""

    name: TargetName = "tfl"
    channels_last = True
    shares_inputs = False
    first: Sequence[Step] = (("floats", compute_in_float32),)
    moves = Patterns.of(MOVES, VECTORS)

    def __init__(self, target: TfliteTarget) -> None:
        self.target = target
        self.title = "TFLite"
        self.last: Sequence[Step] = (
            ("activations", partial(fuse_activations, target=target)),
            ("memory", partial(keep_memory_apart, target=target)),
        )
        self._refusals: dict[Hashable, Refusal | None] = {}
        self._versions: dict[Hashable, int] = {}

    def forms(self, node: Node) -> Sequence[Form]:
        """The TFLite forms that the rules offer, best first."""
        return [form for rule in rules().lower_tfl.get(node.op, ()) if (form := rule(node)) is not None]

    def refuses(self, node: Node, form: Form) -> Refusal | None:
        """What the kernel table says against `form`."""
        key = _key(node, form)
        if key not in self._refusals:
            self._refusals[key] = self.target.refusal(form.op, as_values(form), given(node, form), form.attributes)
        return self._refusals[key]

    def version(self, node: Node, form: Form) -> int:
        """The lowest op version that means `form`."""
        key = _key(node, form)
        if key not in self._versions:
            self._versions[key] = self.target.op_version(form.op, as_values(form), given(node, form), form.attributes)
        return self._versions[key]

    def attributes(self, form: Form) -> Mapping[str, Any]:
        """The fields of the options table."""
        return form.attributes


class OnnxSelection:
    """Forms for ONNX at one opset."""

    name: TargetName = "onnx"
    channels_last = False
    shares_inputs = True
    first: Sequence[Step] = (("recognize", recognize),)
    moves = Patterns.of(MOVES, VECTORS, CONVERSIONS)
    last: Sequence[Step] = ()

    def __init__(self, target: OnnxTarget) -> None:
        self.target = target
        self._refusals: dict[Hashable, Refusal | None] = {}
        self.title = f"ONNX opset {target.opset}"

    def forms(self, node: Node) -> Sequence[Form]:
        """The ONNX forms that the rules offer, best first."""
        rows = rules().lower_onnx.get(node.op, ())
        return [form for rule in rows if (form := rule(node, self.target.opset)) is not None]

    def refuses(self, node: Node, form: Form) -> Refusal | None:
        """What the op's schema at this opset says against `form`."""
        key = _key(node, form)
        if key not in self._refusals:
            values, results, attributes = as_values(form), given(node, form), dict(form.attributes)
            captures = attributes.pop("captures", 0)  # which ONNX's regions take without being told
            values = values[: len(values) - captures]
            self._refusals[key] = self.target.refusal(form.op, values, results, attributes, form.domain)
        return self._refusals[key]

    def version(self, node: Node, form: Form) -> int:
        """The since-version at this opset."""
        return self.target.op_version(form.op, form.domain)

    def attributes(self, form: Form) -> Mapping[str, Any]:
        """The attributes that are written."""
        return form.attributes


def _key(node: Node, form: Form) -> Hashable:
    """What a target's tables can tell apart: op, attributes, types, and which operands are constant."""
    operands = tuple(_operand_key(v) for v in form.operands)
    results = tuple(r.type for r in node.results)
    return form.op, form.domain, operands, results, form.results, repr(form.attributes)


def _operand_key(operand: Operand) -> Hashable:
    if isinstance(operand, Value):
        return operand.type, operand.data is not None
    if operand is None:
        return None
    return (operand.dtype, operand.shape) if isinstance(operand, TensorData) else _array_key(np.asarray(operand))


def _array_key(array: Array) -> Hashable:
    return array.dtype.num, array.shape


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
