"""Recurrent layers in both directions: ONNX's LSTM, GRU and RNN with direction "bidirectional", TFLite's
BIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_RNN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxtfl.mappings.recurrent.unidirectional import LstmWeights, in_file_order, in_steps, lstm_layer, rnn_layer

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder, infer
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.op import Op, attributes_of
from onnxtfl.ir.reshape import reshape, transposed
from onnxtfl.ir.types import TensorType
from onnxtfl.rewriting.registry import Computed, Form, lift_tfl, lower_onnx, rules


@lower_onnx(ops.Bidirectional)
def _bidirectional_onnx(node: Node, opset: int) -> Form | None:
    """Merge the ONNX forms of the two layers: weights and states are concatenated along the direction axis."""
    kind = {"Rnn": ops.Rnn, "Gru": ops.Gru, "Lstm": ops.Lstm}[node.attr("layer")]
    forward, backward = (
        _form_onnx(kind, operands, attributes, opset)
        for operands, attributes in ops.directions_of(node.operands, attributes_of(node))
    )
    if (
        forward is None
        or backward is None
        or ("activations" in forward.attributes) != ("activations" in backward.attributes)
    ):
        return None
    count = max(len(form.operands) for form in (forward, backward))
    pairs = [[*form.operands, *[None] * (count - len(form.operands))] for form in (forward, backward)]
    operands = [_both(*pair) for pair in zip(*pairs, strict=True)]
    if any(v is _UNLIKE for v in operands) or forward.types is None:
        return None
    attributes = {**forward.attributes, **_of_each(forward, backward), "direction": "bidirectional"}
    types = [_in_both(t, 1 if i == 0 else 0) for i, t in enumerate(forward.types)]

    def finish(b: Builder, made: Sequence[Value]) -> list[Value]:
        y = reshape(b, transposed(b, made[0], (0, 2, 1, 3)), node.results[0].shape, node.operand(0))
        states = [b.many(ops.Split, state, None, axis=0, count=2) for state in made[1:]]
        ordered = [state[i] for i in range(2) for state in states]
        return [y, *(reshape(b, v, r.shape, v) for v, r in zip(ordered, node.results[1:], strict=True))]

    return Form(forward.op, tuple(operands), attributes, types=tuple(types), finish=finish)


def _form_onnx(
    op: type[Op], operands: Sequence[Value | None], attributes: Mapping[str, Any], opset: int
) -> Form | None:
    """Return the first ONNX form of `op` on `operands`, or None."""
    node = Node(op, operands, attributes)
    try:
        for type_ in infer(node):
            node.add_result(type_)
        return next(iter(rules().onnx_forms(node, opset)), None)
    finally:
        for i in range(len(operands)):
            node.set_operand(i, None)


def _in_both(type_: TensorType, axis: int) -> TensorType:
    """Return the type of a result with two directions along `axis`."""
    shape = type_.shape or ()
    return type_.with_shape((*shape[:axis], 2, *shape[axis + 1 :]))


_UNLIKE: Any = object()
"""Marks operands that only one of the two layers has."""


def _both(a: Any, b: Any) -> Any:
    """Return an operand for both layers: concatenated, or the shared one."""
    if a is b or not (isinstance(a, Computed) and isinstance(b, Computed)):
        return a if a is b else _UNLIKE
    return Computed(
        _in_both(a.type, 0), lambda builder: builder(ops.Concatenate, a.compute(builder), b.compute(builder), axis=0)
    )


def _of_each(forward: Form, backward: Form) -> dict[str, Any]:
    """Return the activations of both layers and their parameters; nothing if all are the defaults."""
    found: dict[str, Any] = {}
    for name in ("activations", "activation_alpha", "activation_beta"):
        values = [v for form in (forward, backward) for v in form.attributes.get(name, ())]
        found |= {name: values} if values else {}
    return found


@lift_tfl("BIDIRECTIONAL_SEQUENCE_RNN")
def _bidirectional_rnn_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/bidirectional_sequence_rnn.cc."""
    operands = [node.optional(i) for i in range(12)]
    auxiliary, forward_weights, backward_weights = operands[9:12]
    pair = _Directions(b, node, node.operand(0), auxiliary, has_weights=forward_weights is not None)
    results = []
    for start, extra, reverse in ((1, forward_weights, False), (5, backward_weights, True)):
        weights, recurrent, bias, hidden = operands[start : start + 4]
        rows = pair.joined([weights], [extra])
        results.append(rnn_layer(b, node, pair.input(reverse), [rows[0], recurrent, bias, hidden], reverse=reverse))
    return [*pair.outputs(results[0][0], results[1][0]), results[0][1], results[1][1]]


class _Directions:
    """The inputs and outputs of a bidirectional layer.

    An auxiliary input with its own weights adds features to the input; without weights it is the input of the backward
    layer. Source: kernels/bidirectional_sequence_lstm.cc, Eval.
    """

    def __init__(self, b: Builder, node: Node, x: Value, auxiliary: Value | None, *, has_weights: bool) -> None:
        self.b, self.node = b, node
        self.extra = auxiliary if has_weights else None
        self.inputs = [x, x if auxiliary is None or has_weights else auxiliary]

    def input(self, reverse: bool) -> Value:
        """Return the input [T, N, I] of a direction."""
        x = self.inputs[reverse]
        x = x if self.extra is None else self.b(ops.Concatenate, x, self.extra, axis=2)
        return in_steps(self.b, self.node, x)

    def joined(self, weights: Sequence[Value | None], extra: Sequence[Value | None]) -> list[Value | None]:
        """Concatenate each of `weights` [H, I] with the columns in `extra` for the auxiliary input."""
        if self.extra is None:
            return list(weights)
        pairs = zip(weights, extra, strict=True)
        return [a if a is None or e is None else self.b(ops.Concatenate, a, e, axis=1) for a, e in pairs]

    def outputs(self, forward: Value, backward: Value) -> list[Value]:
        """Return the outputs of the file: one tensor, or one per direction."""
        forward, backward = (in_file_order(self.b, self.node, v) for v in (forward, backward))
        if self.node.attributes.get("merge_outputs", False):
            return [self.b(ops.Concatenate, forward, backward, axis=2)]
        return [forward, backward]


@lift_tfl("BIDIRECTIONAL_SEQUENCE_LSTM")
def _bidirectional_lstm_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/bidirectional_sequence_lstm.cc."""
    operands = [node.optional(i) for i in range(48)]
    pair = _Directions(b, node, node.operand(0), operands[39], has_weights=operands[41] is not None)
    results = []
    for reverse in (False, True):
        weights = LstmWeights.of(operands[18:35] if reverse else operands[1:18])
        extra = operands[44:48] if reverse else operands[40:44]
        weights = replace(weights, input=pair.joined(weights.input, extra))
        states = operands[37:39] if reverse else operands[35:37]
        results.append(lstm_layer(b, node, pair.input(reverse), weights, states, reverse=reverse))
    (forward, *first), (backward, *second) = results
    return [*pair.outputs(forward, backward), *first, *second]
