"""Recurrent layers in both directions: toward ONNX, and BIDIRECTIONAL_SEQUENCE_LSTM and _RNN of TFLite."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.mappings.recurrent.recurrence import layer_onnx
from onnxtfl.mappings.recurrent.unidirectional import in_file_order, in_steps, lstm_layer, rnn_layer

from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.source_names import shown_name
from onnxtfl.rewriting.registry import Form, lift_tfl, lower_onnx


@lower_onnx(ops.Bidirectional)
def _bidirectional_onnx(node: Node, opset: int) -> Form | None:
    return layer_onnx(node, opset)


_PARTS = {
    "tfl.BIDIRECTIONAL_SEQUENCE_RNN": (9, ((1, 4), (10, 11), (4, 5)), ((5, 8), (11, 12), (8, 9))),
    "tfl.BIDIRECTIONAL_SEQUENCE_LSTM": (39, ((1, 18), (40, 44), (35, 37)), ((18, 35), (44, 48), (37, 39))),
}
"""The index of the auxiliary input; of the forward and the backward layer the first operand and the one after the last
of the weights, of the weights of the auxiliary input, and of the states.
"""


@lift_tfl("BIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM")
def _bidirectional_tfl(b: Builder, node: Node) -> list[Value]:
    """An auxiliary input with its own weights adds features to the input; without weights it is the backward input.

    Source: kernels/bidirectional_sequence_rnn.cc, bidirectional_sequence_lstm.cc, Eval.
    """
    operands = [node.optional(i) for i in range(48)]
    place, *parts = _PARTS[node.op.name]
    x, auxiliary = node.operand(0), operands[place]
    _check_kernel(node)
    each = [[operands[slice(*span)] for span in part] for part in parts]
    has_weights = any(v is not None for v in each[0][1])
    layer = lstm_layer if node.op.name.endswith("LSTM") else rnn_layer
    outputs, last = list[Value](), list[Value]()
    for reverse, (own, extra, states) in zip((False, True), each, strict=True):
        given, weights = x, own
        if auxiliary is not None and has_weights:
            given = b(ops.Concatenate, x, auxiliary, axis=2)
            weights = [*_joined(b, own, extra), *own[len(extra) :]]
        elif auxiliary is not None and reverse:
            given = auxiliary
        output, *new = layer(b, node, in_steps(b, node, given), [*weights, *states], reverse=reverse)
        outputs.append(output)
        last += new
    outputs = [in_file_order(b, node, v) for v in outputs]
    if node.attributes.get("merge_outputs", False):
        outputs = [b(ops.Concatenate, *outputs, axis=2)]
    return [*outputs, *last]


def _check_kernel(node: Node) -> None:
    """Raise UnsupportedError for a hybrid RNN that is time-major, whose kernel goes over all steps once for each step
    (EvalHybrid in bidirectional_sequence_rnn.cc). Record where a kernel reads other memory than the hidden state: that
    of batch entry n at n times the size of the joined features (the batch-major loops in lstm_eval.cc).
    """
    x, is_lstm = node.operand(0), node.op.name.endswith("LSTM")
    is_time_major = node.attributes.get("time_major", False)
    if not is_lstm and is_time_major and is_hybrid(x, node.operand(1)) and x.shape[0] != 1:
        message = "the kernel of a time-major layer with int8 weights repeats the sequence for each of its steps"
        raise UnsupportedError(message, hint="store the layer batch-major, or its weights as float32", code="E-OP-003")
    if is_lstm and not is_time_major and node.attributes.get("merge_outputs", False) and x.shape[0] != 1:
        assume(
            f"the batch of {shown_name(node)} is 1, or each entry has its own hidden state (TFLite's kernel reads "
            "those of others elsewhere if it joins the outputs)",
            is_minor=True,
        )


def _joined(b: Builder, weights: Sequence[Value | None], extra: Sequence[Value | None]) -> list[Value | None]:
    """Concatenate the first of `weights` [H, I] with the columns in `extra` for the auxiliary input."""
    pairs = zip(weights, extra, strict=False)
    return [w if w is None or e is None else b(ops.Concatenate, w, e, axis=1) for w, e in pairs]
