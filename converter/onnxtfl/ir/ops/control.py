"""Control flow: ops whose attributes are graphs, which take captured values as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.define import *
from onnxtfl.ir.interpret import run


class If(Op):
    """The outputs of `then_branch` if `pred`, of one element, is true, else those of `else_branch`.

    Both are graphs that take all of `captures` and have the same number of outputs, of the same element types. Sizes
    in which the branches differ are unknown in the result; the shape is if the ranks differ.
    Source: neutral-ops 3.66; ONNX If, TFLite IF.
    """

    core = True
    operands = (Operand("pred", BOOLS), Operand("captures", variadic=True))
    results = (Operand("outputs", variadic=True),)
    defaults = {"then_branch": REQUIRED, "else_branch": REQUIRED}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        then_branch, else_branch = (_region(node, name, node.operands[1:]) for name in cls.defaults)
        if len(then_branch.outputs) != len(else_branch.outputs):
            raise ValueError(f"the branches have {len(then_branch.outputs)} and {len(else_branch.outputs)} outputs")
        pairs = zip(then_branch.outputs, else_branch.outputs, strict=True)
        return [joined(a.type, b.type) for a, b in pairs]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        pred, *captures = operands
        assert pred is not None
        branch = attributes["then_branch" if bool(pred.reshape(-1)[0]) else "else_branch"]
        return tuple(run(branch, [v for v in captures if v is not None]))


class While(Op):
    """`values` after `body` was applied as long as `cond` returns true for them.

    Both are graphs that take all of the values; `cond` returns one bool of one element, `body` as many outputs as it
    has inputs. Inputs of loop-carried values whose size changes have an unknown size.
    Source: neutral-ops 3.140; TFLite WHILE.
    """

    core = True
    operands = (Operand("values", variadic=True),)
    results = (Operand("outputs", variadic=True),)
    defaults = {"cond": REQUIRED, "body": REQUIRED}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        cond, body = (_region(node, name, node.operands) for name in cls.defaults)
        if len(cond.outputs) != 1 or len(body.outputs) != len(body.inputs):
            raise ValueError("the condition has one output, the body as many outputs as inputs")
        pairs = zip(node.operands, body.outputs, strict=True)
        return [joined(a.type if a is not None else None, b.type) for a, b in pairs]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        values = [np.asarray(v) for v in operands]
        while bool(run(attributes["cond"], values)[0].reshape(-1)[0]):
            values = run(attributes["body"], values)
        return tuple(values)


class Loop(Op):
    """`values` handed through `body` as long as it says so: of the number of the round, a bool, and the values it makes
    a bool that says whether to go on, and the next values. `go_on` says whether to begin.

    Not core: While as ONNX has it. Source: ONNX Loop-11 without a trip count and without scan outputs (added).
    """

    operands = (Operand("go_on", BOOLS), Operand("values", variadic=True))
    results = (Operand("outputs", variadic=True),)
    defaults = {"body": REQUIRED}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        body = node.attr("body")
        if len(body.inputs) != len(node.operands) + 1 or len(body.outputs) != len(node.operands):
            raise ValueError("the body has another number of inputs or outputs")
        return [joined(v.type, o.type) for v, o in zip(body.inputs[2:], body.outputs[1:], strict=True)]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        go_on, *values = [np.asarray(v) for v in operands]
        number = 0
        while bool(go_on.reshape(-1)[0]):
            go_on, *values = run(attributes["body"], [np.asarray(number, np.int64), go_on, *values])
            number += 1
        return tuple(values)


def _region(node: Node, name: str, given: Sequence[Any]) -> Graph:
    """The graph that is attribute `name`; ValueError where it does not take what is `given`."""
    region = node.attr(name)
    if not isinstance(region, Graph):
        raise ValueError(f"{name} is no graph")
    if region.states:
        raise ValueError(f"{name} keeps a state")
    if len(region.inputs) != len(given) or any(v is None for v in given):
        raise ValueError(f"{name} takes {len(region.inputs)} values, not {len(given)}")
    for inside, outside in zip(region.inputs, given, strict=True):
        if _element(inside.type) != _element(outside.type):
            raise TypeError(f"{name} takes {inside.type}, not {outside.type}")
    return region


def _element(type_: Type | None) -> object:
    return (type_.dtype, type_.quantization) if isinstance(type_, TensorType) else type_


def joined(a: Type | None, b: Type | None) -> Type:
    """The type of a value that has either type; TypeError where there is none."""
    if isinstance(a, TensorType) and isinstance(b, TensorType) and _element(a) == _element(b):
        return a.with_shape(_joined_shape(a.shape, b.shape))
    if a is None or b is None or a != b:
        raise TypeError(f"{a} in one region and {b} in the other")
    return a


def _joined_shape(a: Dims | None, b: Dims | None) -> Dims | None:
    if a is None or b is None or len(a) != len(b):
        return None
    dims: list[Dim] = [x if x == y else fresh() for x, y in zip(a, b, strict=True)]
    return tuple(dims)
