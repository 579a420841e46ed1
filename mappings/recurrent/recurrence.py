"""Recurrent layers: Lstm, Gru, Rnn, one op per direction; `unidirectional` and `bidirectional` lift TFLite's ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnxtfl.mappings.control.loop_lowering import MOST_CALLS, most_packed, unrolled
from onnxtfl.mappings.recurrent.unrolling import KERNEL_ACTIVATIONS, is_smaller_as_loop, most_steps

from onnxtfl.build.attributes import texts, texts_of
from onnxtfl.build.qlinear import MICROSOFT
from onnxtfl.build.sizes import as_int32, slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.budget import check_elements, current_budget
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import PartData, TensorData
from onnxtfl.ir.dims import at_most, differ, is_nonnegative, is_static, known_size
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.reshape import concatenated, dim_value, iota, reshape, stacked_along, transposed, unsqueezed
from onnxtfl.ir.shown_sizes import shown_dim
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.rewriting.registry import Computed, Form, decompose, lift_onnx, lower_onnx, lower_tfl

_Kind = type[ops.Recurrent]
_LAYERS: Mapping[str, _Kind] = {
    "RNN": ops.Rnn, "GRU": ops.Gru, "LSTM": ops.Lstm, "DynamicQuantizeLSTM": ops.Lstm,
}  # fmt: skip

_ACTIVATIONS: Mapping[str, tuple[str, float | None, float | None]] = {
    "Affine": ("affine", 0.0, 0.0),
    "Elu": ("elu", 1.0, None),
    "HardSigmoid": ("hard_sigmoid", 0.2, 0.5),
    "LeakyRelu": ("leaky_relu", 0.01, None),
    "Relu": ("relu", None, None),
    "ScaledTanh": ("scaled_tanh", 0.0, 0.0),
    "Sigmoid": ("sigmoid", None, None),
    "Softplus": ("softplus", None, None),
    "Softsign": ("softsign", None, None),
    "Tanh": ("tanh", None, None),
    "ThresholdedRelu": ("thresholded_relu", 0.0, None),
}
"""ONNX's names (in lower case; files use any case) -> our names and the defaults of alpha and beta.

None: the function has no such parameter. The lists of alphas and betas have entries only for functions with that
parameter. Source: ONNX Runtime, rnn_helpers.cc.
"""
_BY_LETTERS = {name.lower(): found for name, found in _ACTIVATIONS.items()}
_NAMES = {"none": "Affine", **{ours: name for name, (ours, _, _) in _ACTIVATIONS.items()}}
"""Our names of activations -> ONNX's; "none" is Affine with alpha = 1."""

# --- from ONNX --------------------------------------------------------------------------------------------------------


@lift_onnx("RNN", since=(1, 7, 14, 22))
@lift_onnx("GRU", since=(1, 3, 7, 14, 22))
@lift_onnx("LSTM", since=(1, 7, 14, 22))
def _onnx(b: Builder, node: Node) -> list[Value]:
    """Version 1 has `output_sequence`: whether the first result is used."""
    operands = [node.optional(i) for i in range(8)]
    return _lifted(b, node, operands)


@lift_onnx("DynamicQuantizeLSTM", since=(1,), domain=MICROSOFT)
def _dynamic_quantize_lstm(b: Builder, node: Node) -> list[Value]:
    """Weights are [directions, inputs, gates], with one scale per direction or per gate of each direction."""
    operands: list[_Given] = [node.optional(i) for i in range(8)]
    for i, scale in ((1, 8), (2, 10)):
        stored, parameters = node.operand(i), (node.operand(scale), node.optional(scale + 1))
        operands[i] = [_dequantized(b, stored, *parameters, d) for d in range(stored.shape[0])]
    return _lifted(b, node, operands)


def _dequantized(b: Builder, weights: Value, scale: Value, zero: Value | None, index: int) -> Value:
    """Return the dequantized weights [gates, inputs] of a direction."""
    stored = transposed(b, _part(b, weights, index), (1, 0))
    return b(ops.DequantizeLinear, stored, *(None if v is None else _part(b, v, index) for v in (scale, zero)), axis=0)


def _part(b: Builder, x: Value, index: int) -> Value:
    """Return x[index]."""
    if x.data is not None and not x.is_quantized:
        return constant(PartData(x.data, index, index + 1).reshape(x.data.shape[1:]))
    return reshape(b, slice_axes(b, x, {0: slice(index, index + 1)}), x.shape[1:], x)


_Given = Value | list[Value] | None
"""An operand for both directions, or one per direction."""


def _lifted(b: Builder, node: Node, operands: Sequence[_Given]) -> list[Value]:
    """Return the outputs [steps, directions, batch, cells] and the last states [directions, batch, cells]."""
    layer = _LAYERS[node.op.name_in_file]
    x, batch_major = node.operand(0), bool(node.attr("layout", 0))
    x = transposed(b, x, (1, 0, 2)) if batch_major else x
    size, recurrent = node.attr("hidden_size"), operands[2]
    if size is not None and isinstance(recurrent, Value) and recurrent.shape[-1] != size and is_static(recurrent.shape):
        raise ValueError(f"hidden_size is {size}, but the recurrent weights are {recurrent.type}")
    each = list(_attributes(node, layer))
    directions = [
        b.many(layer, *_operands(b, x, layer, operands, (i, len(each)), batch_major), **attributes)
        for i, attributes in enumerate(each)
    ]
    outputs, *states = zip(*directions, strict=True)
    weights = operands[1]
    single = isinstance(weights, Value) and weights.rank == _RANKS["weights"] - 1
    whole = outputs[0] if single else _sequence(b, outputs, batch_major)
    last = [stacked_along(b, s, int(batch_major)) for s in states]
    axis = 0 if batch_major else 1
    return [whole, *(_with_steps(b, s, operands[4], operands[5 + i], axis) for i, s in enumerate(last))]


def _with_steps(b: Builder, last: Value, lengths: _Given, initial: _Given, axis: int) -> Value:
    """Return the last states (rank 3) of directions; 0 for sequences of length 0, as in ONNX Runtime.

    `lengths`: integers [batch]; None if no sequence is empty. `initial`: None if the initial states are 0.
    `axis`: the batch axis.
    """
    if initial is None or not isinstance(lengths, Value) or (lengths.is_constant and (lengths.numpy() > 0).all()):
        return last
    others = [a for a in range(last.rank) if a != axis]
    valid = Term(b, unsqueezed(b, lengths, others)) > Term(b, b.scalar(0, lengths))
    return valid.choose(Term(b, last), 0.0).value


def _sequence(b: Builder, outputs: Sequence[Value], batch_major: bool) -> Value:
    """Concatenate the outputs [steps, batch, cells] of the directions, in the axis order of `layout`."""
    steps, batch, cells = outputs[0].shape
    split = reshape(b, concatenated(b, outputs, 2), (steps, batch, len(outputs), cells))
    return transposed(b, split, (1, 0, 2, 3) if batch_major else (0, 2, 1, 3))


def _attributes(node: Node, layer: _Kind) -> Iterator[dict[str, Any]]:
    """Return the attributes of the op for each direction."""
    direction = texts_of(node.attr("direction", "forward"))
    reversed_ = (False, True) if direction == "bidirectional" else (direction == "reverse",)
    usual = [_NAMES[kind] for kind in layer.defaults["activations"]]
    count = len(usual)
    names = texts(node, "activations") or usual * len(reversed_)
    if len(names) != count * len(reversed_):
        raise ValueError(f"{len(names)} activations, not {count * len(reversed_)}")
    functions = list(_functions(names, node.attr("activation_alpha", ()), node.attr("activation_beta", ())))
    clip = float(node.attr("clip", 0.0))
    if "clip" in node.attributes and not (clip > 0.0 or (clip < 0.0 and layer is ops.Rnn)):  # as in ONNX Runtime
        raise ValueError(f"clip is {clip:g}, not positive")
    shared: dict[str, Any] = {"clip": max(clip, 0.0)}
    if layer is ops.Gru:
        shared["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
    if layer is ops.Lstm:
        shared["coupled"] = bool(node.attr("input_forget", 0))
    for i, reverse in enumerate(reversed_):
        kinds, alphas, betas = zip(*functions[i * count : (i + 1) * count], strict=True)
        yield {**shared, "reverse": reverse, "activations": kinds, "alphas": alphas, "betas": betas}


def _functions(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> Iterator[tuple[str, float, float]]:
    """Return name, alpha and beta of each activation."""
    next_alpha, next_beta = iter(alphas), iter(betas)
    for name in names:
        if name.lower() not in _BY_LETTERS:
            raise UnsupportedError(f"the activation {name}")
        kind, alpha, beta = _BY_LETTERS[name.lower()]
        first = 0.0 if alpha is None else float(next(next_alpha, alpha))
        yield kind, first, 0.0 if beta is None else float(next(next_beta, beta))


def _operands(
    b: Builder,
    x: Value,
    layer: _Kind,
    operands: Sequence[_Given],
    which: tuple[int, int],
    batch_major: bool,
) -> list[Value | None]:
    """Return the operands of the neutral op for direction `which[0]` of `which[1]`."""
    given = {
        name: _of_direction(b, v, *which, 1 if batch_major and name in layer.states else 0, rank)
        for v, (name, rank) in zip(operands[1:], _RANKS.items(), strict=True)
    }
    both = _halves(b, given["bias"])
    given |= {"bias": both[0], "recurrent_bias": both[1]} if layer is ops.Gru else {"bias": _summed(b, both)}
    return [x, *(given.get(o.name) for o in layer.operands[1:])]


_RANKS = {"weights": 3, "recurrent": 3, "bias": 2, "lengths": 1, "hidden": 3, "cell": 3, "peepholes": 2}
"""The operands after the input with their ranks; the lengths (rank 1) have no direction axis."""


def _of_direction(b: Builder, x: _Given, index: int, count: int, axis: int, rank: int) -> Value | None:
    """Return part `index` of `count` along the direction axis of `x`, without that axis.

    PyTorch's first exporter omitted that axis for one direction.
    """
    if isinstance(x, list):
        return x[index]
    if x is None or rank == 1 or (x.rank == rank - 1 and index == 0):
        return x
    if differ(x.shape[axis], count):
        raise ValueError(f"an operand of type {x.type} for {count} directions")
    if axis == 0:
        return _part(b, x, index)
    part = slice_axes(b, x, {axis: slice(index, index + 1)})
    return reshape(b, part, (*x.shape[:axis], *x.shape[axis + 1 :]), part)


def _halves(b: Builder, bias: Value | None) -> list[Value | None]:
    """Return the biases of the input's product and of the recurrent product."""
    return [None, None] if bias is None else [*b.many(ops.Split, bias, axis=0, count=2)]


def _summed(b: Builder, biases: Sequence[Value | None]) -> Value | None:
    first, second = biases
    return None if first is None or second is None else b(ops.Add, first, second)


# --- to ONNX ----------------------------------------------------------------------------------------------------------


@lower_onnx(ops.Rnn)
@lower_onnx(ops.Gru)
@lower_onnx(ops.Lstm)
def layer_onnx(node: Node, opset: int) -> Form | None:
    """Return the ONNX form of one or two directions, whose weights, states and results have a direction axis."""
    directions = ops.directions_of(node)
    first, x, count = directions[0], node.operand(0), len(directions)
    functions, cells = _functions_onnx(directions), node.results[-1].shape[-1]
    if functions is None or not isinstance(cells, int) or not all(_has_onnx_form(d) for d in directions):
        return None
    separate = {name: [d.given[name] for d in directions] for name in _SEPARATE if name in first.given}
    if any(d.given[name] is not first.given[name] for d in directions for name in ("input", "lengths")):
        return None
    if any((v is None) != (values[0] is None) for values in separate.values() for v in values):
        return None
    weights, recurrent, *others = (_with_direction(values) for values in separate.values())
    operands = [x, weights, recurrent, _both_biases(directions, x.dtype), _as_int32(first.given["lengths"]), *others]
    attributes: dict[str, Any] = {"hidden_size": cells, **functions}
    attributes["direction"] = "reverse" if first.attributes["reverse"] else "forward"
    if count == 2:
        attributes["direction"] = "bidirectional"
    if first.attributes["clip"]:
        attributes["clip"] = float(first.attributes["clip"])
    flags = {"linear_before_reset": "linear_before_reset", "coupled": "input_forget"}
    attributes |= {theirs: 1 for ours, theirs in flags.items() if first.attributes.get(ours)}
    name = next(name for name, op in _LAYERS.items() if op is first.kind)
    output, *states = (r.tensor_type for r in node.results)
    steps, batch, width = node.results[0].shape
    types = [output.with_shape((steps, count, batch, width // count))]
    types += [t.with_shape((count, *(t.shape or ()))) for t in states[: len(first.kind.states)]]

    def finish(b: Builder, made: Sequence[Value]) -> list[Value]:
        output, *rest = made
        output = output if count == 1 else transposed(b, output, (0, 2, 1, 3))
        output = reshape(b, output, node.results[0].shape, output, x)
        each = [[v] if count == 1 else b.many(ops.Split, v, axis=0, count=count) for v in rest]
        last = [parts[i] for i in range(count) for parts in each]
        return [output, *(reshape(b, v, r.shape, v, x) for v, r in zip(last, node.results[1:], strict=True))]

    return Form(name, tuple(first.kind.trimmed(operands)), attributes, types=tuple(types), finish=finish)


_SEPARATE = ("weights", "recurrent", "hidden", "cell", "peepholes")
"""The operands that each direction has, without the biases, in ONNX's order."""


def _has_onnx_form(direction: ops.Direction) -> bool:
    """Whether ONNX's op can compute a direction of a layer."""
    given, attributes = direction.given, direction.attributes
    plain = all(given.get(n) is None for n in ("projection", "projection_bias", "norm"))
    extra = [attributes.get(n) for n in ("rows", "cell_clip", "projection_clip")]
    known = is_static(direction.operand("weights").shape[:1])
    return plain and known and not any(extra) and not any(attributes.get("grids", ()))


def _functions_onnx(directions: Sequence[ops.Direction]) -> dict[str, Any] | None:
    """Return the attributes for the activations ({} for the defaults); None if ONNX lacks one.

    alphas and betas have entries only for functions with that parameter.
    """
    names, alphas, betas = list[str](), list[float](), list[float]()
    for direction in directions:
        kinds, *parameters = (direction.attributes[n] for n in ("activations", "alphas", "betas"))
        if not all(kind in _NAMES for kind in kinds):
            return None
        for kind, alpha, beta in zip(kinds, *(_padded(v, len(kinds)) for v in parameters), strict=True):
            names.append(_NAMES[kind])
            _, has_alpha, has_beta = _ACTIVATIONS[names[-1]]
            alphas += [] if has_alpha is None else [1.0 if kind == "none" else alpha]
            betas += [] if has_beta is None else [beta]
    usual = all(tuple(d.attributes["activations"]) == d.kind.defaults["activations"] for d in directions)
    found = {"activations": [] if usual else names, "activation_alpha": alphas, "activation_beta": betas}
    return {name: values for name, values in found.items() if values}


def _padded(values: Sequence[float], count: int) -> list[float]:
    return [*map(float, values), *[0.0] * (count - len(values))]


def _with_direction(values: Sequence[Value | None]) -> Computed | None:
    """Return the operands of all directions along a new first axis."""
    found = [v for v in values if v is not None]
    if not found:
        return None
    type_ = found[0].tensor_type.with_shape((len(found), *found[0].shape))
    return Computed(type_, lambda b: stacked_along(b, found, 0))


def _as_int32(x: Value | None) -> Value | Computed | None:
    if x is None or x.dtype is DType.INT32:
        return x
    return Computed(x.tensor_type.with_dtype(DType.INT32), lambda b: b(ops.Convert, x, dtype=DType.INT32))


def _both_biases(directions: Sequence[ops.Direction], dtype: DType) -> Computed | None:
    """Return the biases of both products: [directions, 2 * gates * cells]."""
    pairs = [(d.given["bias"], d.given.get("recurrent_bias")) for d in directions]
    if not any(v is not None for pair in pairs for v in pair):
        return None
    width = directions[0].operand("weights").shape[0]

    def compute(b: Builder) -> Value:
        check_elements(width, "the bias")
        zeros = constant(np.zeros(width), dtype)
        whole = [b(ops.Concatenate, *(zeros if v is None else v for v in pair), axis=0) for pair in pairs]
        return stacked_along(b, whole, 0)

    return Computed(TensorType(dtype, (len(pairs), 2 * width)), compute)


@decompose(ops.Rnn, "onnx")
@decompose(ops.Gru, "onnx")
@decompose(ops.Lstm, "onnx")
def _single_step(b: Builder, node: Node) -> Value | Sequence[Value] | None:
    """A single step needs no loop."""
    return _written_out(b, node) if node.operand(0).shape[0] == 1 else None


# --- to TFLite --------------------------------------------------------------------------------------------------------

LARGE = 128 << 10
"""Bytes of recurrent weights from which a layer kernel is slower than one subgraph call per step.

Measured for 100 steps of an LSTM, kernel and loop: 280 and 340 us with 64 cells (64 kB), 2700 and 1700 us with 256
cells (1 MB).
"""


def _is_unrolled(node: Node) -> bool:
    """Whether the layer is unrolled."""
    steps, recurrent = node.operand(0).shape[0], node.operand(2)
    if not at_most(steps, most_steps()) or steps <= 0 or _keeps_state(node):
        return False
    return steps == 1 or recurrent.data is None or steps * recurrent.data.nbytes <= most_packed()


@decompose(ops.Rnn, "tfl")
@decompose(ops.Gru, "tfl")
@decompose(ops.Lstm, "tfl")
def _unrolled(b: Builder, node: Node) -> list[Value] | None:
    """Unroll a short sequence of known length."""
    return _written_out(b, node) if _is_unrolled(node) else None


def _written_out(b: Builder, node: Node) -> list[Value]:
    """Return the results of the unrolled layer; the number of steps is known and not 0."""
    assert issubclass(node.op, ops.Recurrent)
    parts = node.op.loop(b, *node.op.padded(node.operands), **attributes_of(node))
    *states, output = unrolled(b, parts, known_size(parts.rounds))
    return [output, *states]


_FUSED = {kind: name for name, kind in KERNEL_ACTIVATIONS.items()}
"""The activations of sequence kernels; LSTM has no "none" (see `unidirectional`)."""


def _keeps_state(node: Node) -> bool:
    """Whether the initial state is a state of the graph, which only a kernel with variable tensors can keep."""
    hidden = ops.operands_of(node)["hidden"]
    return node.graph is not None and any(state.input is hidden for state in node.graph.states)


def _is_fused(node: Node) -> bool:
    """Whether one kernel computes the layer, after its operands are brought to the kernel's form.

    False if a loop over a known number of steps is faster. The batch has to be static: the memory planner resizes
    states only if no tensor before them has a computed size (ArenaPlanner, persistent tensors).
    """
    given, (steps, batch, _) = ops.operands_of(node), node.operand(0).shape
    if not isinstance(batch, int):
        return False
    if isinstance(steps, int) and not _keeps_state(node):
        data = node.operand(2).data
        calls = steps <= MOST_CALLS and data is not None and data.nbytes >= LARGE
        if steps <= most_steps() or (calls and not current_budget().has_small_loops) or is_smaller_as_loop(node):
            return False
    if node.attr("clip") or node.attr("rows") or node.operand(0).dtype is not DType.FLOAT32:
        return False
    constants = (given[n] for n in ("weights", "recurrent", "bias", "peepholes") if n in given)
    if not all(v is None or v.is_constant for v in constants):
        return False
    kinds = node.attr("activations")
    if node.op is ops.Rnn:
        return kinds[0] in _FUSED
    gates, candidate, output = kinds
    others = [given[n] for n in ("projection", "projection_bias", "norm")]
    plain = all(v is None for v in others) and node.attr("grids") == (None, None, None)
    return plain and gates == "sigmoid" and candidate == output and candidate in _FUSED and candidate != "none"


@decompose(ops.Rnn, "tfl", order="operands")
@decompose(ops.Lstm, "tfl", order="operands")
def _brought_to_kernel(b: Builder, node: Node) -> list[Value] | None:
    """Rewrite the layer for the kernels: forward, over all steps, with initial states and a bias.

    The last hidden state is the last output.
    """
    given, outside = ops.operands_of(node), b.graph.output_set()
    x, lengths, reverse = node.operand(0), given["lengths"], node.attr("reverse")
    used = any(r.uses or r in outside for r in node.results[1:])
    if not _is_fused(node) or (lengths is not None and used) or _takes_kernel_form(node):
        return None
    zeros = constant(np.zeros(node.results[1].shape, np.float32))
    bias = given["bias"]
    if bias is None:
        bias = constant(np.zeros(node.operand(1).shape[0], np.float32))
    given |= {"input": _backwards(b, x, lengths) if reverse else x, "lengths": None, "bias": bias}
    given |= {n: reshape(b, given[n] or zeros, zeros.shape) for n in ops.states_of(node)}
    output, _, *cell = b.many(node.op, *given.values(), **{**node.attributes, "reverse": False})
    if used and not is_nonnegative(x.shape[0] - 1):
        assume(f"{shown_dim(x.shape[0])} is at least 1: TFLite has no last state of no steps")
    last = reshape(b, slice_axes(b, output, {0: slice(-1, None)}), node.results[1].shape, x)
    output = _backwards(b, output, lengths) if reverse else output
    return [output if lengths is None else _masked(b, output, lengths), last, *cell]


def _backwards(b: Builder, x: Value, lengths: Value | None) -> Value:
    """Reverse the first `lengths` steps of each sequence (all steps without `lengths`)."""
    if lengths is None:
        return b(ops.Reverse, x, dimensions=(0,))
    return b(ops.ReverseSequence, x, lengths, time_axis=0, batch_axis=1)


def _masked(b: Builder, x: Value, lengths: Value) -> Value:
    """Return `x` [T, N, K] with zeros from step `lengths` [N] on."""
    numbers = iota(b, as_int32(b, dim_value(b, x.shape[0], x)))
    valid = Term(b, unsqueezed(b, numbers, [1])) < Term(b, unsqueezed(b, as_int32(b, lengths), [0]))
    return b(ops.Select, unsqueezed(b, valid.value, [2]), x, b.scalar(0, x))


def _takes_kernel_form(node: Node) -> bool:
    given = ops.operands_of(node)
    sized = all(v is not None and is_static(v.shape) for v in (given["bias"], *ops.states_of(node).values()))
    return not node.attr("reverse") and given["lengths"] is None and sized


@lower_tfl(ops.Rnn)
def _rnn_kernel(node: Node) -> Form | None:
    if not (_is_fused(node) and _takes_kernel_form(node)):
        return None
    x, weights, recurrent, bias, _, hidden = node.op.padded(node.operands)
    options = {
        "fused_activation_function": _FUSED[node.attr("activations")[0]],
        "time_major": True,
        "asymmetric_quantize_inputs": False,
    }
    return Form("UNIDIRECTIONAL_SEQUENCE_RNN", (x, weights, recurrent, bias, hidden), options)


@lower_tfl(ops.Lstm)
def _lstm_kernel(node: Node) -> Form | None:
    """Gates in the order input, forget, cell, output.

    A coupled kernel computes input = 1 - forget, a coupled Lstm forget = 1 - input: equal with negated weights.
    """
    if not (_is_fused(node) and _takes_kernel_form(node)):
        return None
    given, coupled = ops.operands_of(node), node.attr("coupled")

    def gates(name: str, order: Sequence[int | None], count: int = 4) -> list[TensorData | None]:
        value = given[name]
        if value is None or value.data is None:
            return [None] * len(order)
        parts = [None if i is None else _rows(value.data, i, count) for i in order]
        shared = parts[1]
        if coupled and shared is not None:
            parts[1] = shared.scale(np.full(shared.shape[0], -1, np.float32), 0)
        return parts

    order = (None, 0, 3, 1) if coupled else (0, 2, 3, 1)
    peepholes = gates("peepholes", (None, 0, 1) if coupled else (0, 2, 1), 3)
    matrices = [*gates("weights", order), *gates("recurrent", order), *peepholes, *gates("bias", order)]
    operands = (given["input"], *matrices, None, None, given["hidden"], given["cell"], *[None] * 4)
    options = {
        "fused_activation_function": _FUSED[node.attr("activations")[1]],
        "cell_clip": float(node.attr("cell_clip")),
        "proj_clip": 0.0,
        "time_major": True,
        "asymmetric_quantize_inputs": False,
        "diagonal_recurrent_tensors": False,
    }
    return Form("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, options)


def _rows(data: TensorData, index: int, count: int) -> TensorData:
    """Return part `index` of `count` equal parts of `data` along axis 0."""
    size = data.shape[0] // count
    return PartData(data, index * size, (index + 1) * size)
