"""Random small ONNX models of recurrent layers, Scan, Loop and If, one after the other, static and dynamic sizes.

All values but constants are [A, B, features], where A and B are the numbers of steps and of sequences, or 1 or 2 for
states; a dynamic model is run with other sizes of both.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from tests.fuzz.building import BOOL, FLOAT, INT64, Builder

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_UNARY = ("Tanh", "Sigmoid", "Relu", "Neg", "Abs")
_BINARY = ("Add", "Mul", "Sub", "Max")
Dims = tuple[str, str, int]


class _Sequences(Builder):
    """``dims``: the number of steps, of sequences ("1" and "2" for themselves), and of features of each value."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dims: dict[str, Dims] = {}

    def any(self) -> str:
        """A random value, newer ones more likely."""
        names = list(self.dims)
        return names[max(self.below(len(names)) for _ in range(2))]

    def name(self, value: str, *dims: str | int) -> str:
        """Record `dims` of `value`."""
        if value:
            first, second, features = dims
            self.dims[value] = str(first), str(second), int(features)
        return value

    def single(self, value: str, axis: int) -> str:
        """`value` with a unit axis."""
        return value and self.add("Unsqueeze", [value, self.ints(axis)])


def random_recurrent_graph(seed: int, size: int = 6) -> Builder:
    """The builder of the model of a seed, with about ``size`` layers and loops."""
    b = _Sequences(seed)
    steps, batch, dynamic = 1 + b.below(7), 1 + b.below(3), b.below(2) == 1
    for _ in range(1 + b.below(2)):
        name = b.input((steps, batch, 1 + b.below(5)))
        b.name(name, "T", "N", b.shape(name)[2])
        if dynamic:
            b.symbols |= {(name, 0): "T", (name, 1): "N"}
    for _ in range(size):
        b.choose(_STEPS)(b)
    if not b.unused:
        b.add("Identity", [b.inputs[0]])
    return b


def _layer(b: _Sequences) -> None:
    """LSTM, GRU or RNN; its output, its last state, or both."""
    kind, x, hidden = b.choose(list(_GATES)), b.any(), 1 + b.below(5)
    steps, batch, features = b.dims[x]
    direction = b.choose(["forward", "reverse", "bidirectional"])
    count, rows = 1 + (direction == "bidirectional"), _GATES[kind] * hidden
    operands = [x, b.weight(count, rows, features, scale=0.5), b.weight(count, rows, hidden, scale=0.5)]
    operands.append(b.weight(count, 2 * rows, scale=0.5) if b.below(3) else "")
    states = [n for n, d in b.dims.items() if d == (str(count), batch, hidden)]
    if states and b.below(2):
        operands += ["", b.choose(states), *([b.choose(states)] if kind == "LSTM" and b.below(2) else [])]
    attributes = {"linear_before_reset": b.below(2)} if kind == "GRU" else {}
    outputs = 3 if kind == "LSTM" else 2
    y = b.add(kind, operands, outputs, hidden_size=hidden, direction=direction, **attributes)
    if not y:
        return
    for i in range(1, outputs):
        b.name(f"{y[:-1]}{i}", count, batch, hidden)
    if b.below(2):
        y = b.add("Transpose", [y], perm=[0, 2, 1, 3])
        b.name(b.add("Reshape", [y, b.ints(0, 0, count * hidden)]), steps, batch, count * hidden)
    else:
        y = b.add("ReduceSum", [y, b.ints(1)], keepdims=0)
        b.name(y, steps, batch, hidden)


class _Body:
    """The nodes of a region, on [sequences, features] values."""

    def __init__(self, b: _Sequences, features: int) -> None:
        self.b, self.prefix, self.features = b, f"b{len(b.nodes)}_{len(b.weights)}", features
        self.nodes: list[NodeProto] = []

    def __call__(self, op: str, *operands: str, **attributes: object) -> str:
        result = f"{self.prefix}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(operands), [result], **attributes))
        return result

    def formula(self, *values: str) -> str:
        """A bounded value of all of `values`."""
        b, found = self.b, values[0]
        for other in values[1:]:
            is_product = b.below(2)
            value = self("MatMul", other, b.weight(self.features, self.features, scale=0.5)) if is_product else other
            found = self(b.choose(_BINARY), *((found, value) if b.below(2) else (value, found)))
        return self(b.choose(["Tanh", "Sigmoid"]), self(b.choose(_UNARY), found))

    def graph(self, inputs: list[tuple[str, int, int]], outputs: list[tuple[str, int, int]]) -> GraphProto:
        """The region; inputs and outputs: name, element type, rank."""
        return helper.make_graph(self.nodes, self.prefix, list(map(_info, inputs)), list(map(_info, outputs)))


def _info(described: tuple[str, int, int]) -> ValueInfoProto:
    name, dtype, rank = described
    return helper.make_tensor_value_info(name, dtype, [None] * rank)


def _start(b: _Sequences, x: str) -> tuple[str, str]:
    """A state, and a value that the body may capture: both of one step of `x`."""
    state = b.add("ReduceMean", [x], axes=[0], keepdims=0)
    return state, b.add("Relu", [state]) if b.below(2) else state


def _scan(b: _Sequences) -> None:
    """Scan over the first axis, in both directions."""
    x = b.any()
    steps, batch, features = b.dims[x]
    body, (state, captured) = _Body(b, features), _start(b, x)
    h, part = f"{body.prefix}_h", f"{body.prefix}_x"
    new = body.formula(h, part, *([captured] if b.below(2) else []))
    out = body.formula(new, part)
    region = body.graph([(h, FLOAT, 2), (part, FLOAT, 2)], [(new, FLOAT, 2), (out, FLOAT, 2)])
    flags = {"scan_input_directions": [b.below(2)], "scan_output_directions": [b.below(2)]}
    _add_loop(b, "Scan", [state, x], region, b.shape(state), b.shape(x), num_scan_inputs=1, **flags)
    _name_results(b, steps, batch, features)


def _loop(b: _Sequences) -> None:
    """Loop over the steps, or for a constant number of them, with or without an early exit."""
    x = b.any()
    steps, batch, features = b.dims[x]
    body, (state, captured) = _Body(b, features), _start(b, x)
    number, go_on, h = (f"{body.prefix}_{n}" for n in ("i", "c", "h"))
    part = body("Gather", x, number, axis=0)
    new = body.formula(h, part, captured)
    early = not b.below(3)
    again = body("Identity", go_on)
    if early:
        top = body("ReduceMax", new, keepdims=0)
        again = body("Less", top, b.constant(np.float32(b.random.uniform(0.2, 1))))
    out = body.formula(new, part)
    inputs = [(number, INT64, 0), (go_on, BOOL, 0), (h, FLOAT, 2)]
    region = body.graph(inputs, [(again, BOOL, 0), (new, FLOAT, 2), (out, FLOAT, 2)])
    count = b.add("Gather", [b.add("Shape", [x]), b.constant(0, np.int64)], axis=0)
    _add_loop(b, "Loop", [count, b.constant(True), state], region, b.shape(state), b.shape(x))
    _name_results(b, f"rounds{len(b.nodes)}" if early else steps, batch, features)


def _add_loop(
    b: _Sequences, op: str, operands: list[str], region: GraphProto, state: tuple[int, ...], whole: tuple[int, ...],
    **attributes: object,
) -> None:  # fmt: skip
    """Add a loop with one carried value and one collected result; inference does not look into its region."""
    results = [f"v{len(b.nodes)}_{i}" for i in range(2)]
    b.nodes.append(helper.make_node(op, operands, results, f"n{len(b.nodes)}", body=region, **attributes))
    used = {n for node in region.node for n in node.input} | set(operands)
    for name in used:
        b.unused.pop(name, None)
    b.types |= {results[0]: (FLOAT, state), results[1]: (FLOAT, whole)}
    b.unused |= dict.fromkeys(results)


def _name_results(b: _Sequences, steps: str, batch: str, features: int) -> None:
    """Let later steps use the results of the loop that is the last node."""
    last, collected = b.nodes[-1].output
    b.name(collected, steps, batch, features)
    b.name(b.single(last, 0), 1, batch, features)


def _if(b: _Sequences) -> None:
    """If on a sum; the branches capture a value."""
    x = b.any()
    total = b.add("ReduceSum", [x], keepdims=0)
    condition = b.add("Greater", [total, b.constant(np.float32(0))])
    branches = {}
    for name in ("then_branch", "else_branch"):
        body = _Body(b, b.dims[x][2])
        body.prefix += name[:1]
        out = body.formula(x, x)
        branches[name] = body.graph([], [(out, FLOAT, 3)])
    result = f"v{len(b.nodes)}_0"
    b.nodes.append(helper.make_node("If", [condition], [result], f"n{len(b.nodes)}", **branches))
    for used in (condition, x):
        b.unused.pop(used, None)
    b.types[result] = FLOAT, b.shape(x)
    b.unused[result] = None
    b.name(result, *b.dims[x])


def _swap(b: _Sequences) -> None:
    """Exchange steps and sequences."""
    x = b.any()
    first, second, features = b.dims[x]
    b.name(b.add("Transpose", [x], perm=[1, 0, 2]), second, first, features)


def _join(b: _Sequences) -> None:
    """Concatenate the features of two values, or add them."""
    x = b.any()
    same = [n for n, d in b.dims.items() if d[:2] == b.dims[x][:2]]
    y = b.choose(same)
    features = b.dims[x][2] + b.dims[y][2]
    if features < 12:
        b.name(b.add("Concat", [x, y], axis=2), *b.dims[x][:2], features)


def _last_step(b: _Sequences) -> None:
    """The last step only."""
    x = b.any()
    last = b.add("Slice", [x, b.ints(-1), b.ints(np.iinfo(np.int64).max), b.ints(0)])
    b.name(last, 1, *b.dims[x][1:])


_LAYERS = (_layer, _layer, _layer, _scan, _loop, _loop)
_STEPS: tuple[Callable[[_Sequences], None], ...] = (*_LAYERS, _if, _swap, _join, _last_step)
