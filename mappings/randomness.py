"""Random values."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.rules import *

# --- ONNX -------------------------------------------------------------------------------------------------------------

_PARAMETERS: dict[type[Op], tuple[tuple[str, float], ...]] = {
    ops.RngNormal: (("mean", 0.0), ("scale", 1.0)),
    ops.RngUniform: (("low", 0.0), ("high", 1.0)),
}


def _seed(node: Node) -> int:
    """A float; TFLite's seeds are integers, of which 0 means none."""
    seed = node.attributes.get("seed")
    return 0 if seed is None else int(np.float32(seed).view(np.int32)) or 1


def _random(b: Builder, node: Node, op: type[Op], like: bool) -> Value:
    number = node.attributes.get("dtype", None if like else number_of(DType.FLOAT32))
    dtype = node.operand(0).dtype if number is None else dtype_from(number)
    shape = b(ops.Shape, node.operand(0)) if like else constant(np.asarray(node.attributes["shape"], np.int64))
    parameters = [b.scalar(node.attributes.get(name, default), dtype) for name, default in _PARAMETERS[op]]
    return b(op, *parameters, shape, seed=_seed(node))


for _op, _name in ((ops.RngNormal, "RandomNormal"), (ops.RngUniform, "RandomUniform")):
    lift_onnx(_name, since=(1, 22))(partial(_random, op=_op, like=False))
    lift_onnx(f"{_name}Like", since=(1, 22))(partial(_random, op=_op, like=True))


@lift_onnx("Bernoulli", since=(15, 22))
def _bernoulli(b: Builder, node: Node) -> Value:
    """1 where a number of [0, 1) falls below the probability."""
    x, number = node.operand(0), node.attributes.get("dtype")
    drawn = _uniform(b, x, _seed(node))
    return (drawn < Term(b, x)).to(x.dtype if number is None else dtype_from(number)).value


def _uniform(b: Builder, like: Value, seed: int) -> Term:
    return Term(b, b(ops.RngUniform, b.scalar(0.0, like), b.scalar(1.0, like), b(ops.Shape, like), seed=seed))


@lift_onnx("Multinomial", since=(7, 22))
def _multinomial(b: Builder, node: Node) -> Value:
    dtype = dtype_from(node.attributes.get("dtype", number_of(DType.INT32)))
    count = np.asarray(node.attributes.get("sample_size", 1), np.int32)
    return b(ops.Multinomial, node.operand(0), count, seed=_seed(node), dtype=dtype)


# --- TFLite -----------------------------------------------------------------------------------------------------------


def _random_tfl(b: Builder, node: Node, op: type[Op]) -> Value:
    dtype = node.result.dtype
    return b(op, b.scalar(0.0, dtype), b.scalar(1.0, dtype), node.operand(0), seed=_tfl_seed(node))


def _tfl_seed(node: Node) -> int:
    return int(node.attr("seed", 0)) or int(node.attr("seed2", 0))


lift_tfl("RANDOM_UNIFORM")(partial(_random_tfl, op=ops.RngUniform))
lift_tfl("RANDOM_STANDARD_NORMAL")(partial(_random_tfl, op=ops.RngNormal))


@lift_tfl("MULTINOMIAL")
def _multinomial_tfl(b: Builder, node: Node) -> Value:
    seed, dtype = _tfl_seed(node), node.result.dtype
    return b(ops.Multinomial, node.operand(0), node.operand(1), seed=seed, dtype=dtype)


def _random_form(node: Node, name: str) -> Form | None:
    shape = node.operand(2)
    if (scalar(node.operand(0)), scalar(node.operand(1))) != (0.0, 1.0):
        return None
    if shape.dtype is not DType.INT32 and not shape.is_constant:
        return None
    return Form(name, (narrow(shape),), {"seed": node.attr("seed"), "seed2": 0})


lower_tfl(ops.RngUniform)(partial(_random_form, name="RANDOM_UNIFORM"))
lower_tfl(ops.RngNormal)(partial(_random_form, name="RANDOM_STANDARD_NORMAL"))


@lower_tfl(ops.Multinomial)
def _multinomial_form(node: Node) -> Form:
    return Form("MULTINOMIAL", (node.operand(0), node.operand(1)), {"seed": node.attr("seed"), "seed2": 0})


def _scaled(b: Builder, node: Node) -> Value | list[Value] | None:
    """Out of standard numbers in float32; the shape as TFLite takes it."""
    first, second = Term(b, node.operand(0)), Term(b, node.operand(1))
    if (scalar(first.value), scalar(second.value)) == (0.0, 1.0) and first.dtype is DType.FLOAT32:
        return with_int32(b, node, 2)
    standard = b(
        node.op, b.scalar(0.0, DType.FLOAT32), b.scalar(1.0, DType.FLOAT32), node.operand(2), **node.attributes
    )
    width = second - first if node.op is ops.RngUniform else second
    return (Term(b, standard).to(first.dtype) * width + first).value


decompose(ops.RngUniform, "tfl")(_scaled)
decompose(ops.RngNormal, "tfl")(_scaled)


# --- back to ONNX -----------------------------------------------------------------------------------------------------


def _random_onnx(node: Node, opset: int, name: str) -> Form | None:
    """A shape that is known, or that of a tensor."""
    shape, source = static_ints(node.operand(2)), node.operand(2).producer
    numbers = [scalar(node.operand(i)) for i in (0, 1)]
    if None in numbers:
        return None
    names = [parameter for parameter, _ in _PARAMETERS[node.op]]
    seed = {"seed": float(node.attr("seed"))} if node.attr("seed") else {}
    attributes = {"dtype": number_of(node.result.dtype), **dict(zip(names, numbers, strict=True)), **seed}
    if shape is not None:
        return Form(name, (), {**attributes, "shape": tuple(shape)})
    if source is None or source.op is not ops.Shape or source.attr("axes") is not None:
        return None
    return Form(f"{name}Like", (source.operand(0),), attributes)


lower_onnx(ops.RngUniform)(partial(_random_onnx, name="RandomUniform"))
lower_onnx(ops.RngNormal)(partial(_random_onnx, name="RandomNormal"))


def _with_numbers(b: Builder, node: Node) -> Value | None:
    """ONNX's parameters are attributes: computed ones by arithmetic."""
    first, second, shape = (Term(b, node.operand(i)) for i in range(3))
    if scalar(first.value) is None or scalar(second.value) is None:
        standard = b(node.op, b.scalar(0.0, first.dtype), b.scalar(1.0, first.dtype), shape.value, **node.attributes)
        width = second - first if node.op is ops.RngUniform else second
        return (Term(b, standard) * width + first).value
    return None


decompose(ops.RngUniform, "onnx")(_with_numbers)
decompose(ops.RngNormal, "onnx")(_with_numbers)


@lower_onnx(ops.Multinomial)
def _multinomial_onnx(node: Node, opset: int) -> Form | None:
    count = static_ints(node.operand(1))
    if count is None:
        return None
    seed = {"seed": float(node.attr("seed"))} if node.attr("seed") else {}
    attributes = {"sample_size": count[0], "dtype": number_of(node.attr("dtype")), **seed}
    return Form("Multinomial", (node.operand(0),), attributes)
