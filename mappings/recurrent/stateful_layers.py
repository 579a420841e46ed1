"""Recurrent layers of TFLite with states in variable tensors: LSTM, RNN, their sequence forms, and SVDF.

A state is an operand; its new value is an additional result, after those of the file, in the order of operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnxtfl.mappings.recurrent.unrolling import KERNEL_ACTIVATIONS

from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.build.rows import apply_activation
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape_inferred, transposed, unsqueezed
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.declared import as_declared
from onnxtfl.rewriting.registry import lift_tfl
from onnxtfl.rewriting.stored_integers import integers_of


def _fused(node: Node) -> str:
    name = node.attributes.get("fused_activation_function", "NONE")
    if name not in KERNEL_ACTIVATIONS:
        raise UnsupportedError(f"a recurrent layer with the activation {name}", code="E-OP-003")
    return KERNEL_ACTIVATIONS[name]


def _fused_lstm(node: Node, is_integer: bool) -> str:
    """Return the activation of candidate and cell; integer kernels always compute tanh and ignore the option.

    With NONE, float and hybrid kernels read the activated cell from uninitialized memory
    (ApplyActivationToVector in tensor_utils.h, CalculateLstmOutputFloat in lstm_eval.cc).
    """
    name = "tanh" if is_integer else _fused(node)
    if name == "none":
        message = "an LSTM without activation (fused_activation_function NONE): kernels read uninitialized memory"
        raise UnsupportedError(message, hint="set fused_activation_function (usually TANH)", code="E-OP-003")
    return name


@dataclass(frozen=True)
class _Time:
    """The axis order of a sequence: [N, T, I] (batch-major) or [T, N, I]."""

    b: Builder
    batch_major: bool

    def first(self, x: Value) -> Value:
        """Transpose `x` [N, T, I] to [T, N, I] if batch-major; this is its own inverse."""
        return transposed(self.b, x, (1, 0, 2)) if self.batch_major else x


@lift_tfl("RNN")
def _rnn_tfl(b: Builder, node: Node) -> list[Value]:
    """One step: input [N, I], hidden [N, H] -> output [N, H], which is the new state. Source: kernels/basic_rnn.cc."""
    output, hidden = _rnn_layer(b, node, unsqueezed(b, node.operand(0), [0]), node.operands[1:5])
    return [reshape_inferred(b, output, output.shape[1:]), hidden]


@lift_tfl("UNIDIRECTIONAL_SEQUENCE_RNN")
def _sequence_rnn_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/unidirectional_sequence_rnn.cc."""
    time = _Time(b, not node.attributes.get("time_major", False))
    output, hidden = _rnn_layer(b, node, time.first(node.operand(0)), node.operands[1:5])
    return [time.first(output), hidden]


def _rnn_layer(
    b: Builder, node: Node, x: Value, operands: Sequence[Value | None], *, reverse: bool = False
) -> list[Value]:
    """`operands`: weights, recurrent, bias, hidden."""
    weights, recurrent, bias, hidden = operands
    attributes = {"activations": (_fused(node),), "reverse": reverse, "rows": _rows(node, x, weights)}
    return b.many(ops.Rnn, x, weights, recurrent, bias, None, hidden, **attributes)


def _rows(node: Node, x: Value, weights: Value | None) -> str:
    """Return how a hybrid kernel quantizes its activations; "" for other kernels."""
    if weights is None or not is_hybrid(x, weights):
        return ""
    return "asymmetric" if node.attributes.get("asymmetric_quantize_inputs", False) else "symmetric"


@lift_tfl("BIDIRECTIONAL_SEQUENCE_RNN")
def _bidirectional_rnn_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/bidirectional_sequence_rnn.cc."""
    operands = [node.optional(i) for i in range(12)]
    auxiliary, forward_weights, backward_weights = operands[9:12]
    pair = _Both(b, node, node.operand(0), auxiliary, has_weights=forward_weights is not None)
    results = []
    for start, extra, reverse in ((1, forward_weights, False), (5, backward_weights, True)):
        weights, recurrent, bias, hidden = operands[start : start + 4]
        rows = pair.joined([weights], [extra])
        results.append(_rnn_layer(b, node, pair.input(reverse), [rows[0], recurrent, bias, hidden], reverse=reverse))
    return [*pair.outputs(results[0][0], results[1][0]), results[0][1], results[1][1]]


class _Both:
    """The inputs and outputs of a bidirectional layer.

    An auxiliary input with its own weights adds features to the input; without weights it is the input of the backward
    layer. Source: kernels/bidirectional_sequence_lstm.cc, Eval.
    """

    def __init__(self, b: Builder, node: Node, x: Value, auxiliary: Value | None, *, has_weights: bool) -> None:
        self.b, self.node = b, node
        self.time = _Time(b, not node.attributes.get("time_major", False))
        self.extra = auxiliary if has_weights else None
        self.inputs = [x, x if auxiliary is None or has_weights else auxiliary]

    def input(self, reverse: bool) -> Value:
        """Return the input [T, N, I] of a direction."""
        x = self.inputs[reverse]
        return self.time.first(x if self.extra is None else self.b(ops.Concatenate, x, self.extra, axis=2))

    def joined(self, weights: Sequence[Value | None], extra: Sequence[Value | None]) -> list[Value | None]:
        """Concatenate each of `weights` [H, I] with the columns in `extra` for the auxiliary input."""
        if self.extra is None:
            return list(weights)
        pairs = zip(weights, extra, strict=True)
        return [a if a is None or e is None else self.b(ops.Concatenate, a, e, axis=1) for a, e in pairs]

    def outputs(self, forward: Value, backward: Value) -> list[Value]:
        """Return the outputs of the file: one tensor, or one per direction."""
        forward, backward = self.time.first(forward), self.time.first(backward)
        if self.node.attributes.get("merge_outputs", False):
            return [self.b(ops.Concatenate, forward, backward, axis=2)]
        return [forward, backward]


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction of an LSTM, by gate: input (absent if coupled), forget, cell, output.

    Peepholes have no cell gate.
    """

    input: Sequence[Value | None]
    recurrent: Sequence[Value | None]
    peepholes: Sequence[Value | None]
    bias: Sequence[Value | None]
    projection: Value | None
    projection_bias: Value | None
    norm: Sequence[Value | None] = field(default=(None,) * 4)

    @classmethod
    def of(cls, operands: Sequence[Value | None], norm: Sequence[Value | None] = (None,) * 4) -> _Weights:
        """Read the 17 operands of a direction."""
        return cls(operands[:4], operands[4:8], operands[8:11], operands[11:15], operands[15], operands[16], norm)

    def gates(self, b: Builder) -> dict[str, Value | None]:
        """Return the operands of Lstm, with its gate order: input, output, forget, candidate.

        A coupled layer computes input = 1 - forget, Lstm forget = 1 - input: equal for the negated sum, since
        1 - sigmoid(z) = sigmoid(-z).
        """
        coupled = self.input[0] is None
        count = self.recurrent[1].shape[0] if self.recurrent[1] is not None else 0

        def joined(values: Sequence[Value | None], order: Sequence[int]) -> Value | None:
            if all(v is None for v in values):
                return None
            chosen = []
            for place in order:
                value = values[1 if coupled and place == 0 else place]
                value = b(ops.Neg, value) if coupled and place == 0 and value is not None else value
                chosen.append(value if value is not None else _zeros_like(b, values, count))
            return b(ops.Concatenate, *chosen, axis=0)

        every = (0, 3, 1, 2)
        norm = _with_shared(self.norm, coupled)
        return {
            "weights": joined(self.input, every),
            "recurrent": joined([_matrix(b, v) for v in self.recurrent], every),
            "bias": joined(self.bias, every),
            "peepholes": joined([*self.peepholes[:2], None, self.peepholes[2]], (0, 3, 1)),
            "projection": self.projection,
            "projection_bias": self.projection_bias,
            "norm": None if all(v is None for v in norm) else b(ops.Concatenate, *(norm[i] for i in every), axis=0),
        }


def _with_shared(norm: Sequence[Value | None], coupled: bool) -> list[Value | None]:
    """Return the layer norm factors by gate; a coupled input gate shares those of the forget gate."""
    return [norm[1] if coupled else norm[0], *norm[1:]]


def _zeros_like(b: Builder, values: Sequence[Value | None], count: Any) -> Value:
    like = next(v for v in values if v is not None)
    return b(ops.BroadcastTo, b.scalar(0.0, like), [count, *like.shape[1:]])


def _matrix(b: Builder, recurrent: Value | None) -> Value | None:
    """Return recurrent weights as a matrix; a vector is its diagonal."""
    if recurrent is None or recurrent.rank == 2:
        return recurrent
    size = recurrent.shape[0]
    size = known_size(size, "the size of recurrent weights")
    check_elements(size * size, "the matrix of recurrent weights")
    return b(ops.Mul, recurrent, constant(np.eye(size, dtype=np.float32)))


def _lstm_layer(
    b: Builder, node: Node, x: Value, weights: _Weights, states: Sequence[Value | None], *, reverse: bool = False
) -> list[Value]:
    """Apply one direction to x [T, N, I]; return the output [T, N, K], the new hidden state and cell."""
    given, (hidden, cell), of = weights.gates(b), states, node.attributes
    grids = _grids(node, hidden, cell)
    activation = _fused_lstm(node, grids[0] is not None)
    reread = _Reread.of(b, node, hidden, weights)
    results = b.many(
        ops.Lstm,
        x,
        given["weights"],
        *reread.weights(given["recurrent"], given["bias"]),
        None,
        reread.written(hidden),
        cell,
        *(given[name] for name in ("peepholes", "projection", "projection_bias", "norm")),
        activations=("sigmoid", activation, activation if grids[0] is None else _of_cell(cell, weights)),
        coupled=weights.input[0] is None,
        cell_clip=float(of.get("cell_clip", 0.0)),
        projection_clip=float(of.get("proj_clip", 0.0)) if weights.projection is not None else 0.0,
        reverse=reverse,
        rows=_rows(node, x, weights.input[1]),
        grids=(reread.grid or grids[0], *grids[1:]),
        clip=0.0 if grids[0] is None else _LARGEST_SUM,
    )
    return [reread.result(node, results[0]), reread.read(results[1]), results[2]]


@dataclass(frozen=True)
class _Reread:
    """The two quantizations of the hidden state in an integer kernel without projection.

    The kernel quantizes the state with the parameters of intermediate 4 and dequantizes it with those of the state.
    They differ if the output shares the type of another tensor (the other direction, by CONCATENATION). The layer
    computes on the stored values, so its weights and states are rescaled. `read_as`: scale, zero point and
    bits of the state, `stored_as` those of intermediate 4; None if both are the same.
    Source: CalculateLstmOutputInteger8x8_16 in lstm_eval.cc.
    """

    b: Builder
    read_as: tuple[float, int, int] | None
    stored_as: tuple[float, int, int] | None
    is_normalized: bool

    @classmethod
    def of(cls, b: Builder, node: Node, hidden: Value | None, weights: _Weights) -> _Reread:
        """Read the types of the intermediates of `node` and of the hidden state."""
        intermediates: Sequence[Any] = node.attributes.get("intermediates") or ()
        stored = _grid(intermediates[4]) if len(intermediates) > 4 and weights.projection is None else None
        read = None if hidden is None else _grid(hidden.tensor_type)
        read, stored = (None, None) if None in (stored, read) or stored == read else (read, stored)
        return cls(b, read, stored, any(v is not None for v in weights.norm))

    @property
    def grid(self) -> tuple[float, int, int] | None:
        """The quantization to which the hidden state is rounded; None if it is that of the state."""
        return self.stored_as

    def weights(self, recurrent: Value | None, bias: Value | None) -> tuple[Value | None, Value | None]:
        """Return recurrent weights and bias rescaled to the stored hidden state."""
        if self.read_as is None:
            return recurrent, bias
        if recurrent is None or bias is None or self.is_normalized:
            raise UnsupportedError(
                "an integer layer that stores and reads its state with different quantization", code="E-OP-007"
            )
        factor, shift = self._change(self.stored_as, self.read_as)
        term = Term(self.b, recurrent)
        return (term * factor).value, (Term(self.b, bias) + term.reduce("sum", [1], keepdims=False) * shift).value

    def written(self, hidden: Value | None) -> Value | None:
        """Return the state rescaled to the stored values."""
        return hidden if hidden is None else self._changed(hidden, self.read_as, self.stored_as)

    def read(self, hidden: Value) -> Value:
        """Return the new state, dequantized with the parameters of its type."""
        return self._changed(hidden, self.stored_as, self.read_as)

    def result(self, node: Node, output: Value) -> Value:
        """Return the output, dequantized with the parameters of its type."""
        of_result = None if self.stored_as is None else _grid(node.results[0].tensor_type)
        return self._changed(output, self.stored_as, of_result)

    def _changed(self, value: Value, before: Any, after: Any) -> Value:
        if before is None or after is None or before == after:
            return value
        factor, shift = self._change(before, after)
        return (Term(self.b, value) * factor + shift).value

    @staticmethod
    def _change(before: Any, after: Any) -> tuple[float, float]:
        """Return factor and offset from values dequantized as `before` to the same integers dequantized as `after`."""
        return after[0] / before[0], (before[1] - after[1]) * after[0]


_LARGEST_SUM = 32767 / 4096
"""Integer kernels store the argument of a gate as int16 with 12 fractional bits."""


_LEAST_CELL, _LARGEST_CELL = 2.0**-15, 2.0**-9
"""Scales of an int16 cell state with 0 to 6 integer bits. Source: ApplyTanh in portable_tensor_utils.cc."""


def _of_cell(cell: Value | None, weights: _Weights) -> str:
    """Return the activation of an integer cell. UnsupportedError for other scales.

    ApplyTanh then leaves the input gate in its buffer (LstmStepInteger8x8_16 in lstm_eval.cc).
    """
    found = quantization_of(cell)
    if found is not None and np.frexp(found.scales[0])[0] != 0.5:
        message = "the kernel reads the scale of a cell state as a power of two"
        raise UnsupportedError(message, type_=found, code="E-QUANT-001")
    if found is None or _LEAST_CELL <= found.scales[0] <= _LARGEST_CELL:
        return "tanh"
    if weights.input[0] is None:
        raise UnsupportedError("the kernel computes no tanh of a cell state of this scale", type_=found)
    return ops.INPUT_GATE


def _grids(node: Node, hidden: Value | None, cell: Value | None) -> tuple[Any, Any, Any]:
    """Return the quantizations of the states; the projection's operand has that of intermediate 4.

    The kernel negates its zero point (CalculateLstmOutputInteger8x8_16 in lstm_eval.cc).
    """
    intermediates: Sequence[Any] = node.attributes.get("intermediates") or ()
    last = intermediates[4] if len(intermediates) > 4 else None
    if hidden is None or cell is None or not hidden.is_quantized:
        return (None, None, None)
    operand = _grid(last)
    negated = None if operand is None else (operand[0], -operand[1], operand[2])
    return _grid(hidden.tensor_type), _grid(cell.tensor_type), negated


def _grid(type_: TensorType | None) -> tuple[float, int, int] | None:
    """Scale, zero point and bits of a grid of signed integers; uint8 is shifted by 128 to int8."""
    found = type_.quantization if type_ is not None else None
    if found is None:
        return None
    offset = 128 if found.dtype is DType.UINT8 else 0
    return found.scales[0], found.zero_points[0] - offset, found.dtype.bits


@lift_tfl("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _sequence_lstm_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/unidirectional_sequence_lstm.cc, lstm_eval.cc."""
    time = _Time(b, not node.attributes.get("time_major", False))
    output, hidden, cell = _full_lstm(b, node, time.first(node.operand(0)))
    return [time.first(output), hidden, cell]


@lift_tfl("LSTM")
def _lstm_tfl(b: Builder, node: Node) -> list[Value]:
    """One step: input [N, I] -> output [N, K], the new states. Source: kernels/lstm.cc, lstm_eval.cc."""
    if node.attributes.get("kernel_type", "FULL") == "BASIC":
        return _basic_lstm(b, node)
    output, hidden, cell = _full_lstm(b, node, unsqueezed(b, node.operand(0), [0]))
    return [reshape_inferred(b, output, output.shape[1:]), hidden, cell]


def _full_lstm(b: Builder, node: Node, x: Value) -> list[Value]:
    operands = [node.optional(i) for i in range(24)]
    return _lstm_layer(b, node, x, _Weights.of(operands[1:18], operands[20:24]), operands[18:20])


def _basic_lstm(b: Builder, node: Node) -> list[Value]:
    """Operands: input [N, I], hidden [N, H], weights [4 H, I + H] (gates input, candidate, forget, output), bias, cell.

    Results: hidden, cell, and two scratch tensors: the concatenated operands and the sums.
    """
    x, hidden, weights, bias, cell = (node.operand(i) for i in range(5))
    joined = b(ops.Concatenate, x, hidden, axis=1)
    sums = b(ops.DotGeneral, joined, weights, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    of_input, of_state = b.many(ops.Split, _ordered(b, weights), [x.shape[1], hidden.shape[1]], axis=1)
    output, new_hidden, new_cell = b.many(
        ops.Lstm,
        unsqueezed(b, x, [0]),
        of_input,
        of_state,
        _ordered(b, bias),
        None,
        hidden,
        cell,
        grids=(*_grids(node, hidden, cell)[:2], None),
        clip=_LARGEST_SUM if hidden.is_quantized else 0.0,
    )
    results = [reshape_inferred(b, output, output.shape[1:]), new_cell, joined, b(ops.Add, sums, bias)]
    return [*results, new_hidden, new_cell]


def _ordered(b: Builder, gates: Value) -> Value:
    """Reorder gates input, candidate, forget, output to the order of Lstm."""
    parts = b.many(ops.Split, gates, None, axis=0, count=4)
    return b(ops.Concatenate, *(parts[i] for i in (0, 3, 2, 1)), axis=0)


@lift_tfl("BIDIRECTIONAL_SEQUENCE_LSTM")
def _bidirectional_lstm_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/bidirectional_sequence_lstm.cc."""
    operands = [node.optional(i) for i in range(48)]
    pair = _Both(b, node, node.operand(0), operands[39], has_weights=operands[41] is not None)
    results = []
    for reverse in (False, True):
        weights = _Weights.of(operands[18:35] if reverse else operands[1:18])
        extra = operands[44:48] if reverse else operands[40:44]
        weights = replace(weights, input=pair.joined(weights.input, extra))
        states = operands[37:39] if reverse else operands[35:37]
        results.append(_lstm_layer(b, node, pair.input(reverse), weights, states, reverse=reverse))
    (forward, *first), (backward, *second) = results
    return [*pair.outputs(forward, backward), *first, *second]


@lift_tfl("SVDF")
def _svdf(b: Builder, node: Node) -> list[Value]:
    """Multiply the input by `feature_weights` [F, I] and append it to a memory of M steps per filter.

    The output [N, F / rank] is the memory times `time_weights` [F, M], summed over the filters of a unit. The state
    [N, F * M] is the memory.

    Source: kernels/svdf.cc, internal/reference/svdf.h.
    """
    x, features, times, state = (node.operand(i) for i in (0, 1, 2, 4))
    if rows := _rows(node, x, features):
        x = on_int8_grid(b, x, [1], asymmetric=rows == "asymmetric")
    filters, steps = times.shape
    product = b(ops.DotGeneral, x, features, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    newest = as_declared(b, unsqueezed(b, product, [2]), state.type)
    memory = reshape_inferred(b, state, [-1, filters, steps])
    older = b(ops.Slice, memory, [0, 0, 1], [_FAR, _FAR, _FAR], [1, 1, 1])
    memory = b(ops.Concatenate, older, newest, axis=2)
    if state.is_quantized:  # the integer kernel ignores the activation
        output = _integer_units(b, node, memory) if _wraps(node) else _units(b, node, memory, times, node.optional(3))
    else:
        output = apply_activation(b, _units(b, node, memory, times, node.optional(3)), node, smooth=True)
    return [output, reshape_inferred(b, memory, [-1, filters * steps])]


def _units(b: Builder, node: Node, memory: Value, times: Value, bias: Value | None) -> Value:
    """The units of SVDF: memory [N, F, M] * times [F, M], summed over the steps and the filters of a unit, + bias."""
    filters, rank = times.shape[0], node.attributes.get("rank", 1)
    by_filter = Term(b, memory).apply(ops.Mul, times).reduce("sum", [2], keepdims=False).value
    output = Term(b, reshape_inferred(b, by_filter, [-1, filters // rank, rank])).reduce("sum", [2], keepdims=False)
    return (output if bias is None else output.apply(ops.Add, bias)).value


def _wraps(node: Node) -> bool:
    """Whether the sums of the integer SVDF may leave int32, in which the kernel computes them."""
    times, bias, rank = node.operand(2), node.optional(3), node.attributes.get("rank", 1)
    if times.data is None or (bias is not None and bias.data is None):
        return True
    sums = np.abs(times.stored().astype(np.int64)).sum(axis=1).reshape(-1, rank).sum(axis=1) * (1 << 15)
    most = sums if bias is None else sums + np.abs(bias.stored().astype(np.int64))
    return bool((most >= 1 << 31).any())


def _integer_units(b: Builder, node: Node, memory: Value) -> Value:
    """The units from sums of stored integers, which wrap around at 32 bits."""
    times, bias = node.operand(2), node.optional(3)
    memory_32, times_32 = (Term(b, integers_of(b, v)).to(DType.INT32).value for v in (memory, times))
    sums = _units(b, node, memory_32, times_32, None if bias is None else integers_of(b, bias))
    found = [q.scales[0] for v in (memory, times) if (q := quantization_of(v)) is not None]
    return (Term(b, sums).to(DType.FLOAT32) * math.prod(found)).value


_FAR = (1 << 31) - 1
