"""If, Loop and Scan for random ONNX graphs, whose regions read values from outside: each adds a node, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from tests.fuzz.drawing import fits_product
from tests.fuzz.graphs_onnx import Drawing, info

Step = Callable[[Drawing], Any]
_DTYPES = ("float32", "float32", "float32", "int32", "int64")
_SEVERAL = (2, 3, 3, 4)
_FLOAT_BINARY = ("Add", "Mul", "Sub", "Max")
_INTEGER_BINARY = ("Add", "Sub", "Max", "Min")
_UNARY = ("Tanh", "Sigmoid", "Relu", "Neg", "Abs")


class _Body:
    """The nodes of a region; its values are of one dtype."""

    def __init__(self, g: Drawing, x: str, name: str) -> None:
        self.g, self.dtype, self.prefix = g, g.array(x).dtype, f"{name}{len(g.nodes)}"
        self.features = g.array(x).shape[-1]
        self.nodes: list[NodeProto] = []

    def __call__(self, op: str, *operands: str, **attributes: Any) -> str:
        result = f"{self.prefix}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(operands), [result], **attributes))
        return result

    def formula(self, *values: str) -> str:
        """A value of all of ``values``: bounded, or of integers that hardly grow."""
        g, found, is_float = self.g, values[0], self.dtype.kind == "f"
        for value in values[1:]:
            other = self.product(value) if is_float and g.chance(0.4) else value
            op = g.choose(_FLOAT_BINARY if is_float else _INTEGER_BINARY)
            found = self(op, *((found, other) if g.below(2) else (other, found)))
        if not is_float:
            return self(g.choose(("Abs", "Neg", "Identity")), found)
        return self(g.choose(("Tanh", "Sigmoid")), self(g.choose(_UNARY), found))

    def product(self, value: str) -> str:
        """A value times constant weights, of the same shape."""
        weight = self.g.random.uniform(-1, 1, [self.features] * 2).astype(self.dtype)
        return self("MatMul", value, self.g.constant(weight))

    def value(self, name: str, rank: int, dtype: Any = None) -> ValueInfoProto:
        """The declaration of an input or output: without sizes."""
        return info(name, np.dtype(dtype or self.dtype), [None] * rank)

    def graph(self, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> GraphProto:
        """The region."""
        return helper.make_graph(self.nodes, self.prefix, list(inputs), list(outputs))


def _of_steps(g: Drawing) -> tuple[str, list[str]]:
    """A value whose first axis is repeated over; its sum over that axis, and what the body may read besides it."""
    x = g.value(_DTYPES, _SEVERAL, fits=fits_product)
    g.fix(x, -1)
    state = g.node("ReduceSum", [x, g.constant([0], np.int64)], keepdims=0)
    return x, [*state, *(g.node("Relu", state) if state and g.array(x).dtype.kind == "f" and g.below(2) else state)]


def _scan(g: Drawing) -> None:
    """Scan over the first axis, in both directions."""
    x, read = _of_steps(g)
    if not read:
        return
    state, captured = read
    body, rank = _Body(g, x, "scan"), g.rank(state)
    h, part = f"{body.prefix}_h", f"{body.prefix}_x"
    new = body.formula(h, part, *([captured] if g.below(2) else []))
    out = body.formula(new, part)
    region = body.graph([body.value(n, rank) for n in (h, part)], [body.value(n, rank) for n in (new, out)])
    directions = {"scan_input_directions": [g.below(2)], "scan_output_directions": [g.below(2)]}
    g.node("Scan", [state, x], 2, body=region, num_scan_inputs=1, **directions)


def _loop(g: Drawing) -> None:
    """Loop over the first axis, in a third of the cases with an early end."""
    x, read = _of_steps(g)
    if not read:
        return
    state, captured = read
    body, rank = _Body(g, x, "loop"), g.rank(state)
    number, go_on, h = (f"{body.prefix}_{n}" for n in ("i", "c", "h"))
    part = body("Gather", x, number, axis=0)
    new = body.formula(h, part, captured)
    again = body("Identity", go_on)
    if g.chance(1 / 3):
        limit = g.constant(g.random.uniform(0.2, 1) * (1 if body.dtype.kind == "f" else 40), body.dtype)
        again = body("Less", body("ReduceMax", new, keepdims=0), limit)
    out = body.formula(new, part)
    inputs = [body.value(number, 0, "int64"), body.value(go_on, 0, "bool"), body.value(h, rank)]
    region = body.graph(inputs, [body.value(again, 0, "bool"), body.value(new, rank), body.value(out, rank)])
    sizes = g.node("Shape", [x])
    count = g.node("Gather", [*sizes, g.constant(0, np.int64)], axis=0) if sizes else []
    if count:
        g.node("Loop", [*count, g.constant(True), state], 2, body=region)


def _if(g: Drawing) -> None:
    """If on an input or on a sum; the branches read values from outside."""
    x = g.value(_DTYPES, (1, *_SEVERAL))
    g.fix(x, -1)
    if g.below(2):
        condition = [g.new("bool", ())]
    else:
        total = g.node("ReduceSum", [x], keepdims=0)
        condition = g.node("Greater", [*total, g.constant(0, g.array(x).dtype)]) if total else []
    branches = {}
    for name in ("then_branch", "else_branch"):
        body = _Body(g, x, name[:4])
        out = body.formula(x, *([x] if g.below(2) else []))
        branches[name] = body.graph([], [body.value(out, g.rank(x))])
    if condition:
        g.node("If", condition, **branches)


STEPS: dict[str, Step] = {"If": _if, "Loop": _loop, "Scan": _scan}
