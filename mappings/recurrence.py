"""Recurrent layers: Lstm, Gru, Rnn, one op for each direction.

=====================  ==========================================================================================
ONNX                   LSTM, RNN 1 7 14 22, GRU 1 3 7 14 22, com.microsoft DynamicQuantizeLSTM
=====================  ==========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxtfl.rules import *


@dataclass(frozen=True)
class _Layer:
    """An ONNX op: its neutral op, the number of gates, of states, and the default activations of one direction."""

    op: type[Op]
    gates: int
    states: int
    activations: tuple[str, ...]


_RNN = _Layer(ops.Rnn, 1, 1, ("Tanh",))
_GRU = _Layer(ops.Gru, 3, 1, ("Sigmoid", "Tanh"))
_LSTM = _Layer(ops.Lstm, 4, 2, ("Sigmoid", "Tanh", "Tanh"))
_LAYERS = {"RNN": _RNN, "GRU": _GRU, "LSTM": _LSTM, "DynamicQuantizeLSTM": _LSTM}

_ACTIVATIONS: Mapping[str, tuple[str, float | None, float | None]] = {
    "affine": ("affine", 0.0, 0.0),
    "elu": ("elu", 1.0, None),
    "hardsigmoid": ("hard_sigmoid", 0.2, 0.5),
    "leakyrelu": ("leaky_relu", 0.01, None),
    "relu": ("relu", None, None),
    "scaledtanh": ("scaled_tanh", 0.0, 0.0),
    "sigmoid": ("sigmoid", None, None),
    "softplus": ("softplus", None, None),
    "softsign": ("softsign", None, None),
    "tanh": ("tanh", None, None),
    "thresholdedrelu": ("thresholded_relu", 0.0, None),
}
"""ONNX's names, in lower case -> ours, and the defaults of alpha and beta (None: the function has no such parameter).

Source: ONNX Runtime, rnn_helpers.cc, which also says that the lists of alphas and betas have entries only for those
functions that have the parameter.
"""

# --- from ONNX --------------------------------------------------------------------------------------------------------


@lift_onnx("RNN", since=(1, 7, 14, 22))
@lift_onnx("GRU", since=(1, 3, 7, 14, 22))
@lift_onnx("LSTM", since=(1, 7, 14, 22))
def _onnx(b: Builder, node: Node) -> list[Value]:
    """Version 1's `output_sequence` says whether the first result is used."""
    operands = [node.optional(i) for i in range(8)]
    return _lifted(b, node, operands)


@lift_onnx("DynamicQuantizeLSTM", since=(1,), domain=MICROSOFT)
def _dynamic_quantize_lstm(b: Builder, node: Node) -> list[Value]:
    """Weights are [directions, inputs, gates], with a scale for each direction, or for each gate of each."""
    operands = [node.optional(i) for i in range(8)]
    for i, scale in ((1, 8), (2, 10)):
        weights, count = operands[i], node.operand(scale).rank
        if weights is None:
            raise ValueError("no weights")
        parameters = [_along(b, node.optional(j), count) for j in (scale, scale + 1)]
        real = Term(b, weights).to(DType.FLOAT32)
        if parameters[1] is not None:
            real = real - Term(b, parameters[1]).to(DType.FLOAT32)
        assert parameters[0] is not None
        operands[i] = transposed(b, (real * Term(b, parameters[0])).value, (0, 2, 1))
    return _lifted(b, node, operands)


def _along(b: Builder, parameter: Value | None, rank: int) -> Value | None:
    """A parameter [directions] or [directions, gates] of weights [directions, inputs, gates]."""
    if parameter is None:
        return None
    return unsqueezed(b, parameter, [1] if rank == 2 else [1, 2])


def _lifted(b: Builder, node: Node, operands: Sequence[Value | None]) -> list[Value]:
    """The results [steps, directions, batch, cells], and the last states [directions, batch, cells]."""
    layer = _LAYERS[node.op.name.partition(".")[2]]
    x, batch_major = operands[0], bool(node.attr("layout", 0))
    if x is None:
        raise ValueError("no input")
    if batch_major:
        x = transposed(b, x, (1, 0, 2))
    directions = [
        b.many(layer.op, *_operands(b, x, layer, operands, i, batch_major), **attributes)
        for i, attributes in enumerate(_attributes(node, layer))
    ]
    outputs, *states = zip(*directions, strict=True)
    return [_sequence(b, outputs, batch_major), *(_joined_states(b, s, batch_major) for s in states)]


def _sequence(b: Builder, outputs: Sequence[Value], batch_major: bool) -> Value:
    """The outputs [steps, batch, cells] of the directions as one result, with the axis order of the layout."""
    steps, batch, cells = outputs[0].shape
    whole = outputs[0] if len(outputs) == 1 else b(ops.Concatenate, *outputs, axis=2)
    split = reshape(b, whole, (steps, batch, len(outputs), cells))
    return transposed(b, split, (1, 0, 2, 3) if batch_major else (0, 2, 1, 3))


def _joined_states(b: Builder, states: Sequence[Value], batch_major: bool) -> Value:
    axis = 1 if batch_major else 0
    parts = [unsqueezed(b, state, [axis]) for state in states]
    return parts[0] if len(parts) == 1 else b(ops.Concatenate, *parts, axis=axis)


def _attributes(node: Node, layer: _Layer) -> Iterator[dict[str, Any]]:
    """The attributes of the op of each direction."""
    direction = _text(node.attr("direction", "forward")).lower()
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"direction {direction!r}")
    reversed_ = (False, True) if direction == "bidirectional" else (direction == "reverse",)
    names = [_text(n) for n in node.attr("activations", ())] or [*layer.activations] * len(reversed_)
    count = len(layer.activations)
    if len(names) != count * len(reversed_):
        raise ValueError(f"{len(names)} activations, not {count * len(reversed_)}")
    functions = list(_functions(names, node.attr("activation_alpha", ()), node.attr("activation_beta", ())))
    shared: dict[str, Any] = {"clip": max(float(node.attr("clip", 0.0)), 0.0)}
    if layer is _GRU:
        shared["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
    if layer is _LSTM:
        shared["coupled"] = bool(node.attr("input_forget", 0))
    for i, reverse in enumerate(reversed_):
        kinds, alphas, betas = zip(*functions[i * count : (i + 1) * count], strict=True)
        yield {**shared, "reverse": reverse, "activations": kinds, "alphas": alphas, "betas": betas}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> Iterator[tuple[str, float, float]]:
    """Name, alpha and beta of each activation."""
    next_alpha, next_beta = iter(alphas), iter(betas)
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise UnsupportedError(f"the activation {name}")
        kind, alpha, beta = _ACTIVATIONS[name.lower()]
        yield (
            kind,
            0.0 if alpha is None else float(next(next_alpha, alpha)),
            0.0 if beta is None else float(next(next_beta, beta)),
        )


def _operands(
    b: Builder, x: Value, layer: _Layer, operands: Sequence[Value | None], index: int, batch_major: bool
) -> list[Value | None]:
    """The operands of the neutral op of direction `index`, in its order."""
    w, r, bias, lengths, hidden, cell, peepholes = (
        v if v is None or i == 3 else _of_direction(b, v, index, 1 if batch_major and i in (4, 5) else 0)
        for i, v in enumerate(operands[1:])
    )
    if layer is _LSTM:
        return [x, w, r, _summed(b, bias), lengths, hidden, cell, peepholes]
    if layer is _GRU:
        return [x, w, r, *_halves(b, bias), lengths, hidden]
    return [x, w, r, _summed(b, bias), lengths, hidden]


def _of_direction(b: Builder, x: Value, index: int, axis: int) -> Value:
    """Part `index` of `x` along its axis of directions, which is dropped."""
    part = sliced(b, x, {axis: slice(index, index + 1)})
    return reshape(b, part, (*x.shape[:axis], *x.shape[axis + 1 :]), part)


def _halves(b: Builder, bias: Value | None) -> list[Value | None]:
    """The bias of the input's product, and of the recurrent product."""
    return [None, None] if bias is None else [*b.many(ops.Split, bias, None, axis=0, count=2)]


def _summed(b: Builder, bias: Value | None) -> Value | None:
    first, second = _halves(b, bias)
    return None if first is None or second is None else b(ops.Add, first, second)


# --- to TFLite --------------------------------------------------------------------------------------------------------

MOST_UNROLLED = 64
"""Steps of the longest sequence that is written out."""


@decompose(ops.Rnn, "onnx")
@decompose(ops.Gru, "onnx")
@decompose(ops.Lstm, "onnx")
def _single_step(b: Builder, node: Node) -> Value | Sequence[Value] | None:
    """One step is no loop."""
    return _unrolled(b, node) if node.operand(0).shape[0] == 1 else None


@decompose(ops.Rnn, "tfl")
@decompose(ops.Gru, "tfl")
@decompose(ops.Lstm, "tfl")
def _unrolled(b: Builder, node: Node) -> list[Value] | None:
    """Step by step, for a short sequence whose length is known."""
    steps = node.operand(0).shape[0]
    if not isinstance(steps, int) or not 0 < steps <= MOST_UNROLLED:
        return None
    assert issubclass(node.op, ops.Recurrent)
    return node.op.unrolled(b, *node.op.padded(node.operands), **attributes_of(node))
