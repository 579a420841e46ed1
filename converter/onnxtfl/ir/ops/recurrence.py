"""Recurrent layers over a sequence, each defined by one Scan: Lstm Gru Rnn.

One direction each; a bidirectional layer is two ops, whose outputs the mapping joins. Time is the first axis. The
products of the input with its weights are taken for all steps at once, unless loops are to be small (`Budget.loops`)
and the input is smaller than they are; each step is one product with the state.

Names of dimensions: T steps, N batch, I input, H cells, K hidden state (H, or fewer under a projection).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from onnxtfl.ir.attributes import Attribute, Choice, Flag, Float, Several, Text
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Dim, differ, exceeds, known_of
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.formula import Derived, Term
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import FLOATS, INDICES, Attributes, Operand
from onnxtfl.ir.ops.arithmetic import Add
from onnxtfl.ir.ops.broadcasting import BroadcastTo
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.loops import Scan, ScanParts
from onnxtfl.ir.ops.shape import Shape
from onnxtfl.ir.ops.splitting import Split
from onnxtfl.ir.reshape import dim_vector, iota
from onnxtfl.ir.row_quantization import on_int8_grid
from onnxtfl.ir.types import DType, TensorType, Type

LAYER_NORM_EPSILON = 1e-8
"""The epsilon that TFLite's kernels add to the variance of a gate. Source: tensor_utils, MeanStddevNormalization."""

ACTIVATIONS: dict[str, Callable[[Term, float, float], Term]] = {
    "affine": lambda x, a, b: x * a + b,
    "elu": lambda x, a, b: x.apply("Elu", alpha=a),
    "hard_sigmoid": lambda x, a, b: x.apply("HardSigmoid", slope=a, offset=b),
    "leaky_relu": lambda x, a, b: x.apply("LeakyRelu", alpha=a),
    "none": lambda x, a, b: x,
    "relu": lambda x, a, b: x.relu(),
    "relu6": lambda x, a, b: x.clamp(0.0, 6.0),
    "relu_n1_to_1": lambda x, a, b: x.clamp(-1.0, 1.0),
    "scaled_tanh": lambda x, a, b: (x * b).tanh() * a,
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "sign": lambda x, a, b: x.sign(),
    "softplus": lambda x, a, b: x.apply("Softplus", threshold=math.inf),
    "softsign": lambda x, a, b: x / (x.abs() + 1.0),
    "tanh": lambda x, a, b: x.tanh(),
    "thresholded_relu": lambda x, a, b: x.apply("ThresholdedRelu", alpha=a),
}
"""Activations by name, as functions of a term, alpha and beta."""


class Recurrent(Derived, register=False):
    """A recurrent layer in one direction, whose cell is `step`.

    Every kind has these operands: input [T, N, I]; weights [gates * H, I] and recurrent [gates * H, K], gates one after
    the other; lengths [N], the steps of each sequence (absent: T): the outputs of later steps are 0, the last state is
    that after the last valid step; hidden [N, K], the state before the first step (absent: 0). Results: output
    [T, N, K], the last hidden state [N, K].

    `reverse`: from the last valid step to the first; the output of a step stays at its index. `activations`, `alphas`,
    `betas`: of each kind of gate. `clip`: bound of the arguments of activations, 0 for none. `rows`: how rows of
    the operands of products are rounded to int8 over their range: "" (not), "symmetric", "asymmetric".
    """

    results: ClassVar[tuple[Operand, ...]] = (Operand("output"), Operand("last_hidden"))
    shared = {
        "reverse": Flag(False),
        "alphas": Several(Float(), ()),
        "betas": Several(Float(), ()),
        "clip": Float(0.0),
        "rows": Choice("", "symmetric", "asymmetric", default=""),
    }
    gates: ClassVar[int] = 1
    states: ClassVar[tuple[str, ...]] = ("hidden",)
    """The operands with the states before the first step, in the order of the results after the output."""

    @classmethod
    def shape(cls, *operands: Any, **attributes: Any) -> list[Dims | None]:
        x, weights, recurrent = operands[:3]
        given = {o.name: v for o, v in zip(cls.operands, operands, strict=False) if v is not None}
        if x.rank != 3:
            raise ValueError(f"an input of rank {x.rank}, not [steps, batch, features]")
        cls._check_weights(given)
        steps, batch, features = x.shape
        _check_equal("features", features, weights.shape[1])
        widths = cls.widths(given)
        for name, width in zip(cls.states, widths, strict=True):
            state = given.get(name)
            if state is not None:
                if state.rank != 2:
                    raise ValueError(f"a state {state.type}, not of [batch, elements]")
                _check_equal("sequences", batch, state.shape[0])
                _check_equal("elements of a state", width, state.shape[1])
                batch = known_of(batch, state.shape[0])
        return [(steps, batch, recurrent.shape[1]), *((batch, width) for width in widths)]

    @classmethod
    def _check_weights(cls, given: Mapping[str, Value]) -> None:
        """Raise ValueError if the weights of the input and of the hidden state do not match."""
        weights, recurrent = given["weights"], given["recurrent"]
        if weights.rank != 2 or recurrent.rank != 2:
            raise ValueError(f"weights {weights.type} and {recurrent.type}, which are not matrices")
        _check_equal("rows of weights", weights.shape[0], recurrent.shape[0])
        if "projection" not in given:
            for rows in (recurrent.shape[0], weights.shape[0]):  # one of them may be dynamic
                _check_equal("rows of weights", rows, recurrent.shape[1] * cls.gates)

    @classmethod
    def step(cls, x: Term, states: Sequence[Term], given: Mapping[str, Term], attributes: Attributes) -> list[Term]:
        """Return the states after a step; `x`: the input's product [N, gates * H]; `given`: inner operands."""
        raise NotImplementedError

    @classmethod
    def expand(cls, b: Builder, *operands: Value | None, **attributes: Any) -> list[Value]:
        """Return the layer as a Scan."""
        parts = cls.loop(b, *operands, **attributes)
        *states, output = b.many(Scan, None, *parts.values, **parts.attributes)
        return [output, *states]

    @classmethod
    def loop(cls, b: Builder, *operands: Value | None, **attributes: Any) -> ScanParts:
        """Return the operands and attributes of the Scan that defines the layer."""
        layer = _Layer(cls, b, operands, attributes)
        x, lengths = layer.input, layer.lengths
        product = x if layer.is_multiplied_inside else layer.product(b, x)
        scanned = [product] if lengths is None else [product, _counts(b, x)]
        computed = [v for v in layer.captures.values() if not _is_weight(v)]
        back = bool(attributes["reverse"])
        values = [*layer.states, *scanned, *computed, *([] if lengths is None else [lengths])]
        axes = {"axes": (0,) * len(scanned), "reversed": (back,) * len(scanned)}
        collected = {"result_axes": (0,), "result_reversed": (back,)}
        body = layer.body(product)
        return ScanParts(None, values, {"body": body, "carried": len(layer.states), **axes, **collected})

    @classmethod
    def widths(cls, given: Mapping[str, Value]) -> list[Dim]:
        """Return the number of elements per sequence of each state."""
        weights, recurrent = given["weights"], given["recurrent"]
        cells = known_of(weights.shape[0], recurrent.shape[0]) // cls.gates
        return [recurrent.shape[1], cells][: len(cls.states)]


def operands_of(layer: Node) -> dict[str, Value | None]:
    """Return the operands of `layer` by name; None for absent ones."""
    return {o.name: v for o, v in zip(layer.op.operands, layer.op.padded(layer.operands), strict=True)}


def states_of(layer: Node) -> dict[str, Value | None]:
    """Return the states of `layer` before the first step by name; None for absent ones."""
    assert issubclass(layer.op, Recurrent)
    given = operands_of(layer)
    return {name: given[name] for name in layer.op.states}


def _check_equal(what: str, a: Dim, b: Dim) -> None:
    """Raise ValueError if two sizes are known and differ."""
    if differ(a, b):
        raise ValueError(f"{a} {what}, but {b} in another operand")


class _Layer:
    """The parts of a layer of `kind`, from its `operands`.

    `input` [T, N, I]; `weights` and `bias`: of the input (a layer with normalization adds the bias in each step);
    `lengths`; `states` before the first step; `captures`: the other operands by name, which each step takes.
    """

    def __init__(
        self, kind: type[Recurrent], b: Builder, operands: Sequence[Value | None], attributes: Attributes
    ) -> None:
        given = {o.name: v for o, v in zip(kind.operands, operands, strict=True) if v is not None}
        outside = {"input", "weights", "lengths", *kind.states, *(() if "norm" in given else ("bias",))}
        self.captures = {name: v for name, v in given.items() if name not in outside}
        self.kind, self.attributes, self.input, self.weights = kind, attributes, given["input"], given["weights"]
        self.lengths, self.bias = given.get("lengths"), given.get("bias") if "bias" in outside else None
        self.states = [
            given[name] if name in given else _zeros(b, (self.input.shape[1], width), self.input, *given.values())
            for name, width in zip(kind.states, kind.widths(given), strict=True)
        ]

    @property
    def is_multiplied_inside(self) -> bool:
        """Whether each step multiplies its part of the input, since a loop stores scanned values several times."""
        features, rows = self.input.shape[-1], self.weights.shape[0]
        constants = all(v is None or _is_weight(v) for v in (self.weights, self.bias))
        is_loop = self.input.shape[0] != 1
        return is_loop and current_budget().has_small_loops and constants and exceeds(rows, features)

    def product(self, b: Builder, x: Value) -> Value:
        """Return the products [..., gates * H] of `x` [..., I] with the weights, plus the bias."""
        product = _matmul(Term(b, x), Term(b, _inside(b, self.weights)), self.attributes).value
        return product if self.bias is None else b(Add, product, _inside(b, self.bias))

    def body(self, product: Value) -> Graph:
        """Return the body of the layer's Scan over `product`, or over the input, which each step multiplies.

        Inputs: the states, the part of a step, the step index if there are lengths, captured values, the lengths.
        """
        graph = Graph("step")
        b = Builder(graph)

        def read(type_: Type | None) -> Term:
            return Term(b, graph.add_input(type_))

        states = [read(s.type) for s in self.states]
        x = read(TensorType(product.dtype, product.shape[1:]))
        number = None if self.lengths is None else read(TensorType(DType.INT32, ()))
        captures = {n: Term(b, _inside(b, v)) if _is_weight(v) else read(v.type) for n, v in self.captures.items()}
        lengths = None if self.lengths is None else read(self.lengths.type).value
        x = Term(b, self.product(b, x.value)) if self.is_multiplied_inside else x
        new = self.kind.step(x, states, captures, self.attributes)
        output, after = _valid(number, lengths, new, states)
        graph.outputs = [*(s.value for s in after), output.value]
        return graph


def _is_weight(value: Value) -> bool:
    """Whether `value` is a constant, or converted from one."""
    node = value.producer
    return value.is_constant or (node is not None and node.op is Convert and node.operand(0).is_constant)


def _inside(b: Builder, value: Value) -> Value:
    """Return `value` inside the graph of `b`; conversions of constants are repeated there."""
    node = value.producer
    return value if node is None or node.graph is b.graph else b.remade(node, *node.operands)[0]


def _valid(
    number: Term | None, lengths: Value | None, new: Sequence[Term], old: Sequence[Term]
) -> tuple[Term, list[Term]]:
    """Return output and states of step `number` for sequences of `lengths`, from the states after and before it."""
    if number is None or lengths is None:
        return new[0], list(new)
    valid = (number.to(lengths.dtype) < Term(number.b, lengths)).apply("Reshape", np.asarray([-1, 1]))
    return valid.choose(new[0], 0.0), [valid.choose(after, before) for after, before in zip(new, old, strict=True)]


def _zeros(b: Builder, dims: Sequence[Dim], x: Value, *sources: Value) -> Value:
    """Return zeros of shape `dims` in the dtype of `x`; dynamic sizes are those of `x` and `sources`."""
    return b(BroadcastTo, b.scalar(0.0, x), dim_vector(b, dims, x, *sources))


def _counts(b: Builder, x: Value) -> Value:
    """Return the step indices, int32 [T]."""
    return iota(b, b(Shape, x, axes=(0,), dtype=DType.INT32))


def _matmul(x: Term, weights: Term, attributes: Attributes) -> Term:
    """Return the product of `x` [..., I] and `weights` [M, I]: [..., M]."""
    last = (x.rank - 1,)
    if rows := attributes["rows"]:
        x = Term(x.b, on_int8_grid(x.b, x.value, last, asymmetric=rows == "asymmetric"))
    return x.apply("DotGeneral", weights, lhs_contracting_dimensions=last, rhs_contracting_dimensions=(1,))


def _parts(x: Term, count: int) -> list[Term]:
    """Split `x` into `count` equal parts along the last axis."""
    return [Term(x.b, v) for v in x.b.many(Split, x.value, axis=x.rank - 1, count=count)]


def activation(x: Term, place: int, attributes: Attributes) -> Term:
    """Apply activation `place` of a layer with `attributes`; its argument is bounded by `clip`."""
    alpha, beta = (float(v[place]) if place < len(v) else 0.0 for v in (attributes["alphas"], attributes["betas"]))
    return ACTIVATIONS[attributes["activations"][place]](clipped(x, attributes["clip"]), alpha, beta)


def clipped(x: Term, bound: float) -> Term:
    """Clamp `x` to [-bound, bound]; 0: no bound."""
    return x.clamp(-float(bound), float(bound)) if bound > 0 else x


_LAYER = (Operand("input", FLOATS), Operand("weights", FLOATS), Operand("recurrent", FLOATS))
_LENGTHS = Operand("lengths", INDICES, optional=True)


def _optional(*names: str) -> tuple[Operand, ...]:
    return tuple(Operand(name, FLOATS, optional=True) for name in names)


class Rnn(Recurrent):
    """hidden = f(input W^T + hidden R^T + bias), f = activations[0]. bias [H].

    Source: ONNX RNN, TFLite RNN, UNIDIRECTIONAL_SEQUENCE_RNN (added).
    """

    operands = (*_LAYER, *_optional("bias"), _LENGTHS, *_optional("hidden"))
    attributes = {**Recurrent.shared, "activations": Several(Text(), ("tanh",))}

    @classmethod
    def step(cls, x: Term, states: Sequence[Term], given: Mapping[str, Term], attributes: Attributes) -> list[Term]:
        return [activation(x + _matmul(states[0], given["recurrent"], attributes), 0, attributes)]


class Gru(Recurrent):
    """Gates update z, reset r, candidate n: hidden = (1 - z) n + z hidden.

    z, r = f(input W^T + hidden R^T + bias) and n = g(input W^T + (r hidden) R^T + bias); with `linear_before_reset`
    n = g(input W^T + r (hidden R^T + bias)).

    bias, recurrent_bias [3 H]; activations: of z and r, of n. Source: ONNX GRU (added).
    """

    operands = (*_LAYER, *_optional("bias", "recurrent_bias"), _LENGTHS, *_optional("hidden"))
    gates = 3
    attributes = {
        **Recurrent.shared,
        "activations": Several(Text(), ("sigmoid", "tanh")),
        "linear_before_reset": Flag(False),
    }

    @classmethod
    def step(cls, x: Term, states: Sequence[Term], given: Mapping[str, Term], attributes: Attributes) -> list[Term]:
        hidden, recurrent, bias = states[0], given["recurrent"], given.get("recurrent_bias")
        update, reset, candidate = _parts(x, 3)
        if attributes["linear_before_reset"]:
            product = _matmul(hidden, recurrent, attributes)
            product = product if bias is None else product + bias
            z, r, _ = _parts(activation(x + product, 0, attributes), 3)
            inner = r * _parts(product, 3)[2]
        else:
            product = _with_bias(_matmul(hidden, _rows(recurrent, 0, 2), attributes), bias, 0, 2)
            of_update, of_reset = _parts(product, 2)
            z = activation(update + of_update, 0, attributes)
            r = activation(reset + of_reset, 0, attributes)
            inner = _with_bias(_matmul(r * hidden, _rows(recurrent, 2, 3), attributes), bias, 2, 3)
        n = activation(candidate + inner, 1, attributes)
        return [n + z * (hidden - n)]


def _with_bias(x: Term, bias: Term | None, start: int, end: int) -> Term:
    return x if bias is None else x + _rows(bias, start, end)


def _rows(weights: Term, start: int, end: int) -> Term:
    """Return gates `start` to `end` of the 3 in `weights`, along the first axis."""
    gates = [Term(weights.b, v) for v in weights.b.many(Split, weights.value, axis=0, count=3)][start:end]
    return gates[0] if len(gates) == 1 else gates[0].apply("Concatenate", *gates[1:], axis=0)


INPUT_GATE = "input_gate"
"""The third kind of activation of an Lstm whose hidden state does not depend on its cell."""


class Lstm(Recurrent):
    """Gates input i, output o, forget f, candidate g: cell = f cell + i g, hidden = o h(cell).

    i, o, f and g are activations of input W^T + hidden R^T + peephole * cell + bias, each bounded by `clip`: of the
    first kind for i, o and f, of the second for g; h is the third (`INPUT_GATE`: i instead of h(cell)). bias [4 H];
    cell [N, H], the state before the first step; peepholes [3 H] of i, o (which sees the new cell) and f; projection
    [K, H] and projection_bias [K], of the hidden state; norm [4 H]: the sum without bias is normalized over the H
    cells, times norm. `coupled`: f = 1 - i; `cell_clip`, `projection_clip`: bounds of the states, 0 for none. `grids`:
    the quantizations to which hidden, cell and the projection's operand are rounded, None for none. Results also: the
    last cell [N, H]. Source: ONNX LSTM, TFLite LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM, lstm_eval.cc (added).
    """

    operands = (
        *_LAYER,
        *_optional("bias"),
        _LENGTHS,
        *_optional("hidden", "cell", "peepholes", "projection", "projection_bias", "norm"),
    )
    results = (*Recurrent.results, Operand("last_cell"))
    gates = 4
    states = ("hidden", "cell")
    attributes = {
        **Recurrent.shared,
        "activations": Several(Text(), ("sigmoid", "tanh", "tanh")),
        "coupled": Flag(False),
        "cell_clip": Float(0.0),
        "projection_clip": Float(0.0),
        "grids": Attribute((None, None, None)),
    }

    @classmethod
    def _check_weights(cls, given: Mapping[str, Value]) -> None:
        super()._check_weights(given)
        hidden, cells = cls.widths(given)
        wanted = {"peepholes": (3 * cells,), "norm": (4 * cells,)}
        for name, sizes in {**wanted, "projection": (hidden, cells), "projection_bias": (hidden,)}.items():
            found = sizes if name not in given else given[name].shape
            if len(found) != len(sizes):
                raise ValueError(f"{name} of rank {len(found)}")
            for size, other in zip(found, sizes, strict=True):
                _check_equal(f"numbers of {name}", size, other)

    @classmethod
    def step(cls, x: Term, states: Sequence[Term], given: Mapping[str, Term], attributes: Attributes) -> list[Term]:
        hidden, cell = states
        total = x + _matmul(hidden, given["recurrent"], attributes)
        sums = _parts(total, 4)
        look = _parts(given["peepholes"], 3) if "peepholes" in given else [None] * 3
        plain = "peepholes" not in given and "norm" not in given
        together = _parts(activation(total, 0, attributes), 4) if plain else []

        def gate(place: int, seen: Term) -> Term:
            """Return gate `place` of the first kind; without peepholes all of them are one activation."""
            if together:
                return together[place]
            weights = look[place]
            whole = sums[place] if weights is None else sums[place] + weights * seen
            return activation(_normalized(whole, place, given), 0, attributes)

        i = gate(0, cell)
        f = 1.0 - i if attributes["coupled"] else gate(2, cell)
        g = activation(_normalized(sums[3], 3, given), 1, attributes)
        of_hidden, of_cell, of_operand = attributes["grids"]
        new = on_grid(clipped(f * cell + i * g, attributes["cell_clip"]), of_cell)
        if attributes["activations"][2] == INPUT_GATE:
            output = gate(1, new) * i
        else:
            output = gate(1, new) * activation(new, 2, {**attributes, "clip": 0.0})
        output = _projected(on_grid(output, of_operand), given, attributes) if "projection" in given else output
        return [on_grid(clipped(output, attributes["projection_clip"]), of_hidden), new]


def _normalized(total: Term, place: int, given: Mapping[str, Term]) -> Term:
    """Apply layer normalization of gate `place`, and its bias, if the layer has it."""
    if "norm" not in given:
        return total
    centered = total - total.mean([-1])
    deviation = ((centered * centered).mean([-1]) + LAYER_NORM_EPSILON).rsqrt()
    scaled = centered * deviation * _parts(given["norm"], 4)[place]
    return scaled + _parts(given["bias"], 4)[place] if "bias" in given else scaled


def _projected(output: Term, given: Mapping[str, Term], attributes: Attributes) -> Term:
    output = _matmul(output, given["projection"], attributes)
    return output + given["projection_bias"] if "projection_bias" in given else output


Grid = tuple[float, int, int] | tuple[float, int, int, float, int]
"""Scale, zero point and bits of a signed integer; then the scale and zero point to dequantize it, if others."""


def on_grid(x: Term, grid: Grid | None) -> Term:
    """Quantize `x` and dequantize it; None: not rounded."""
    if grid is None:
        return x
    scale, zero, bits = grid[:3]
    half = 1 << (bits - 1)
    steps = (x / scale).apply("RoundNearestEven").clamp(float(-half - zero), float(half - 1 - zero))
    if len(grid) == 3:
        return steps * scale
    return (steps + float(zero - grid[4])) * grid[3]
