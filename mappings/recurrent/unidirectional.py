"""Recurrent layers of TFLite in one direction, with states in variable tensors: LSTM, RNN and their sequence forms.

A state is an operand; its new value is an additional result, after those of the file, in the order of operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnxtfl.mappings.recurrent.unrolling import KERNEL_ACTIVATIONS

from onnxtfl.build.hybrid import is_hybrid
from onnxtfl.dataclass import dataclass
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.reshape import reshape_inferred, transposed, unsqueezed
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.registry import lift_tfl


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


_OF_ONE_STEP = ("tfl.RNN", "tfl.LSTM")


def in_steps(b: Builder, node: Node, x: Value) -> Value:
    """Return `x`, which is one step [N, I], batch-major [N, T, I] or time-major, as [T, N, I]."""
    return unsqueezed(b, x, [0]) if node.op.name in _OF_ONE_STEP else _reordered(b, node, x)


def in_file_order(b: Builder, node: Node, output: Value) -> Value:
    """Return `output` [T, N, K] in the axis order of `node`, as for `in_steps`."""
    if node.op.name in _OF_ONE_STEP:
        return reshape_inferred(b, output, output.shape[1:])
    return _reordered(b, node, output)


def _reordered(b: Builder, node: Node, x: Value) -> Value:
    return x if node.attributes.get("time_major", False) else transposed(b, x, (1, 0, 2))


@lift_tfl("RNN")
@lift_tfl("UNIDIRECTIONAL_SEQUENCE_RNN")
def _rnn_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/basic_rnn.cc, unidirectional_sequence_rnn.cc."""
    output, hidden = rnn_layer(b, node, in_steps(b, node, node.operand(0)), node.operands[1:5])
    return [in_file_order(b, node, output), hidden]


def rnn_layer(
    b: Builder, node: Node, x: Value, operands: Sequence[Value | None], *, reverse: bool = False
) -> list[Value]:
    """Apply one direction to x [T, N, I]; `operands`: weights, recurrent, bias, hidden."""
    weights, recurrent, bias, hidden = operands
    attributes = {"activations": (_fused(node),), "reverse": reverse, "rows": hybrid_rows(node, x, weights)}
    return b.many(ops.Rnn, x, weights, recurrent, bias, None, hidden, **attributes)


def hybrid_rows(node: Node, x: Value, weights: Value | None) -> str:
    """Return how a hybrid kernel quantizes its activations; "" for other kernels."""
    if weights is None or not is_hybrid(x, weights):
        return ""
    return "asymmetric" if node.attributes.get("asymmetric_quantize_inputs", False) else "symmetric"


@dataclass(frozen=True)
class _LstmWeights:
    """The weights of one direction of an LSTM, by gate: input (absent if coupled), forget, cell, output.

    Peepholes have no cell gate.
    """

    input: Sequence[Value | None]
    recurrent: Sequence[Value | None]
    peepholes: Sequence[Value | None]
    bias: Sequence[Value | None]
    projection: Value | None
    projection_bias: Value | None
    norm: Sequence[Value | None]

    @classmethod
    def of(cls, operands: Sequence[Value | None]) -> _LstmWeights:
        """Read the 17 weights of a direction; those of the normalization are after its two states."""
        gates = (operands[:4], operands[4:8], operands[8:11], operands[11:15])
        return cls(*gates, operands[15], operands[16], operands[19:])

    def gates(self, b: Builder) -> dict[str, Value | None]:
        """Return the operands of Lstm, with its gate order: input, output, forget, candidate.

        A coupled layer computes input = 1 - forget, Lstm forget = 1 - input: equal for the negated sum, since
        1 - sigmoid(z) = sigmoid(-z). Factors of the normalized sum are shared as they are.
        """
        coupled = self.input[0] is None
        count = self.recurrent[1].shape[0] if self.recurrent[1] is not None else 0

        def joined(values: Sequence[Value | None], order: Sequence[int], *, negates: bool = True) -> Value | None:
            if all(v is None for v in values):
                return None
            chosen = []
            for place in order:
                value = values[1 if coupled and place == 0 else place]
                value = b(ops.Neg, value) if negates and coupled and place == 0 and value is not None else value
                chosen.append(value if value is not None else _zeros_like(b, values, count))
            return b(ops.Concatenate, *chosen, axis=0)

        every = (0, 3, 1, 2)
        return {
            "weights": joined(self.input, every),
            "recurrent": joined([_matrix(b, v) for v in self.recurrent], every),
            "bias": joined(self.bias, every),
            "peepholes": joined([*self.peepholes[:2], None, self.peepholes[2]], (0, 3, 1)),
            "projection": self.projection,
            "projection_bias": self.projection_bias,
            "norm": joined(self.norm, every, negates=False),
        }


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


def lstm_layer(
    b: Builder, node: Node, x: Value, operands: Sequence[Value | None], *, reverse: bool = False
) -> list[Value]:
    """Apply one direction to x [T, N, I]; return the output [T, N, K], the new hidden state and cell."""
    weights, (hidden, cell), of = _LstmWeights.of(operands), operands[17:19], node.attributes
    given = weights.gates(b)
    grids = _grids(node, hidden, cell, is_projected=weights.projection is not None)
    activation = _fused_lstm(node, grids[0] is not None)
    results = b.many(
        ops.Lstm,
        x,
        given["weights"],
        given["recurrent"],
        given["bias"],
        None,
        hidden,
        cell,
        *(given[name] for name in ("peepholes", "projection", "projection_bias", "norm")),
        activations=("sigmoid", activation, activation if grids[0] is None else _of_cell(cell, weights)),
        coupled=weights.input[0] is None,
        cell_clip=float(of.get("cell_clip", 0.0)),
        projection_clip=float(of.get("proj_clip", 0.0)) if weights.projection is not None else 0.0,
        reverse=reverse,
        rows=hybrid_rows(node, x, weights.input[1]),
        grids=grids,
        clip=0.0 if grids[0] is None else _LARGEST_SUM,
    )
    return [_with_own_parameters(b, node, results[0], grids[0]), *results[1:]]


def _with_own_parameters(b: Builder, node: Node, output: Value, of_hidden: ops.Grid | None) -> Value:
    """Return `output`, which is the hidden state, dequantized with the parameters of its own type."""
    declared = _grid(node.results[0].tensor_type)
    if declared is None or of_hidden is None or len(of_hidden) == 3 or of_hidden[3:] == declared[:2]:
        return output
    (scale, zero), (state_scale, state_zero) = declared[:2], of_hidden[3:]
    return (Term(b, output) * (scale / state_scale) + (state_zero - zero) * scale).value


_LARGEST_SUM = 32767 / 4096
"""Integer kernels store the argument of a gate as int16 with 12 fractional bits."""


_LEAST_CELL, _LARGEST_CELL = 2.0**-15, 2.0**-9
"""Scales of an int16 cell state with 0 to 6 integer bits. Source: ApplyTanh in portable_tensor_utils.cc."""


def _of_cell(cell: Value | None, weights: _LstmWeights) -> str:
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


def _grids(
    node: Node, hidden: Value | None, cell: Value | None, *, is_projected: bool = False
) -> tuple[ops.Grid | None, ops.Grid | None, ops.Grid | None]:
    """Return the quantizations of the states and of the projection's operand.

    The kernel quantizes the projection's operand (whose zero point it negates), or without projection the hidden state,
    with the parameters of intermediate 4. It dequantizes the state with those of its tensor, which are others if the
    output shares the type of another tensor (the other direction, by CONCATENATION).
    Source: CalculateLstmOutputInteger8x8_16 in lstm_eval.cc.
    """
    intermediates: Sequence[Any] = node.attributes.get("intermediates") or ()
    if hidden is None or cell is None or not hidden.is_quantized:
        return (None, None, None)
    of_hidden, of_cell = _grid(hidden.tensor_type), _grid(cell.tensor_type)
    last = _grid(intermediates[4]) if len(intermediates) > 4 else None
    if last is None or of_hidden is None:
        return of_hidden, of_cell, None
    if is_projected:
        scale, zero, bits = last
        return of_hidden, of_cell, (scale, -zero, bits)
    return of_hidden if last == of_hidden else (*last, *of_hidden[:2]), of_cell, None


def _grid(type_: TensorType | None) -> tuple[float, int, int] | None:
    """Scale, zero point and bits of a grid of signed integers; uint8 is shifted by 128 to int8."""
    found = type_.quantization if type_ is not None else None
    if found is None:
        return None
    offset = 128 if found.dtype is DType.UINT8 else 0
    return found.scales[0], found.zero_points[0] - offset, found.dtype.bits


@lift_tfl("LSTM")
@lift_tfl("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _lstm_tfl(b: Builder, node: Node) -> list[Value]:
    """Source: kernels/lstm.cc, unidirectional_sequence_lstm.cc, lstm_eval.cc."""
    if node.attributes.get("kernel_type", "FULL") == "BASIC":
        return _basic_lstm(b, node)
    operands = [node.optional(i) for i in range(24)]
    output, *states = lstm_layer(b, node, in_steps(b, node, node.operand(0)), operands[1:])
    return [in_file_order(b, node, output), *states]


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
        grids=_grids(node, hidden, cell),
        clip=_LARGEST_SUM if hidden.is_quantized else 0.0,
    )
    results = [reshape_inferred(b, output, output.shape[1:]), new_cell, joined, b(ops.Add, sums, bias)]
    return [*results, new_hidden, new_cell]


def _ordered(b: Builder, gates: Value) -> Value:
    """Reorder gates input, candidate, forget, output to the order of Lstm."""
    parts = b.many(ops.Split, gates, axis=0, count=4)
    return b(ops.Concatenate, *(parts[i] for i in (0, 3, 2, 1)), axis=0)
