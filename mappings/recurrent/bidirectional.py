"""Recurrent layers in both directions: toward ONNX, and BIDIRECTIONAL_SEQUENCE_LSTM and _RNN of TFLite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxtfl.mappings.recurrent.recurrence import layer_onnx
from onnxtfl.mappings.recurrent.unidirectional import LstmWeights, in_file_order, in_steps, lstm_layer, rnn_layer

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.rewriting.registry import Form, lift_tfl, lower_onnx


@lower_onnx(ops.Bidirectional)
def _bidirectional_onnx(node: Node, opset: int) -> Form | None:
    return layer_onnx(node, opset)


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
