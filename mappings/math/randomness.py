"""Random values."""

from __future__ import annotations

from functools import partial

import numpy as np

from onnxtfl.build.dtypes import dtype_from, number_of
from onnxtfl.build.operands import random_uniform
from onnxtfl.build.sizes import narrow_constant, with_int32
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.matching import splat_value
from onnxtfl.ir.op import Op
from onnxtfl.ir.reshape import as_int64
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import Form, decompose, lift_onnx, lift_tfl, lower_onnx, lower_tfl

# --- ONNX -------------------------------------------------------------------------------------------------------------

_PARAMETERS: dict[type[Op], tuple[tuple[str, float], ...]] = {
    ops.RngNormal: (("mean", 0.0), ("scale", 1.0)),
    ops.RngUniform: (("low", 0.0), ("high", 1.0)),
}


def _seed(node: Node) -> int | None:
    """Return the bits of the seed, a float; None if there is none."""
    seed = node.attributes.get("seed")
    return None if seed is None else int(np.float32(seed).view(np.int32))


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
    """Return 1 where a uniform random element of [0, 1) is below the probability."""
    x, number = node.operand(0), node.attributes.get("dtype")
    drawn = random_uniform(b, x, _seed(node))
    return (drawn < Term(b, x)).to(x.dtype if number is None else dtype_from(number)).value


@lift_onnx("Multinomial", since=(7, 22))
def _multinomial(b: Builder, node: Node) -> Value:
    dtype = dtype_from(node.attributes.get("dtype", number_of(DType.INT32)))
    count = np.asarray(node.attributes.get("sample_size", 1), np.int32)
    return b(ops.Multinomial, node.operand(0), count, seed=_seed(node), dtype=dtype)


# --- TFLite -----------------------------------------------------------------------------------------------------------


def _random_tfl(b: Builder, node: Node, op: type[Op]) -> Value:
    dtype = node.result.dtype
    return b(op, b.scalar(0.0, dtype), b.scalar(1.0, dtype), node.operand(0), seed=_tfl_seed(node))


def _tfl_seed(node: Node) -> int | None:
    return int(node.attr("seed", 0)) or int(node.attr("seed2", 0)) or None


def _tfl_seeds(node: Node) -> dict[str, int]:
    """Return both seeds of the kernel, which are 0 if there is none."""
    seed = node.attr("seed")
    return {"seed": seed or 0, "seed2": int(seed == 0)}


@lift_tfl("MULTINOMIAL")
def _multinomial_tfl(b: Builder, node: Node) -> Value:
    return b(ops.Multinomial, *node.operands, seed=_tfl_seed(node), dtype=node.result.dtype)


def _random_form(node: Node, name: str) -> Form | None:
    shape = node.operand(2)
    if not _is_standard(node) or (shape.dtype is not DType.INT32 and not shape.is_constant):
        return None
    return Form(name, (narrow_constant(shape),), _tfl_seeds(node))


for _op, _name in ((ops.RngUniform, "RANDOM_UNIFORM"), (ops.RngNormal, "RANDOM_STANDARD_NORMAL")):
    lift_tfl(_name)(partial(_random_tfl, op=_op))
    lower_tfl(_op)(partial(_random_form, name=_name))


@lower_tfl(ops.Multinomial)
def _multinomial_form(node: Node) -> Form:
    return Form("MULTINOMIAL", tuple(node.operands), _tfl_seeds(node))


def _is_standard(node: Node) -> bool:
    return (splat_value(node.operand(0)), splat_value(node.operand(1))) == (0.0, 1.0)


@decompose(ops.RngUniform, "tfl")
@decompose(ops.RngNormal, "tfl")
def _for_tfl(b: Builder, node: Node) -> Value | list[Value] | None:
    """Scale the standard distribution in float32; the shape is int32."""
    if _is_standard(node) and node.operand(0).dtype is DType.FLOAT32:
        return with_int32(b, node, 2)
    return _by_standard(b, node, DType.FLOAT32)


def _by_standard(b: Builder, node: Node, dtype: DType) -> Value:
    """Return elements of the standard distribution in `dtype`, scaled and shifted."""
    first, second = Term(b, node.operand(0)), Term(b, node.operand(1))
    standard = b(node.op, b.scalar(0.0, dtype), b.scalar(1.0, dtype), node.operand(2), **node.attributes)
    width = second - first if node.op is ops.RngUniform else second
    return (Term(b, standard).to(first.dtype) * width + first).value


# --- back to ONNX -----------------------------------------------------------------------------------------------------


def _seed_onnx(node: Node) -> dict[str, float]:
    return {} if node.attr("seed") is None else {"seed": float(node.attr("seed"))}


def _random_onnx(node: Node, opset: int, name: str) -> Form | None:
    """ONNX's forms with a static shape, or with the shape of a tensor."""
    shape, source = static_ints(node.operand(2)), node.operand(2).producer
    numbers = [splat_value(node.operand(i)) for i in (0, 1)]
    if None in numbers:
        return None
    names = [parameter for parameter, _ in _PARAMETERS[node.op]]
    attributes = {"dtype": number_of(node.result.dtype), **dict(zip(names, numbers, strict=True)), **_seed_onnx(node)}
    if shape is not None:
        return Form(name, (), {**attributes, "shape": tuple(shape)})
    if source is None or source.op is not ops.Shape or source.attr("axes") is not None:
        return None
    return Form(f"{name}Like", (source.operand(0),), attributes)


lower_onnx(ops.RngUniform)(partial(_random_onnx, name="RandomUniform"))
lower_onnx(ops.RngNormal)(partial(_random_onnx, name="RandomNormal"))


@decompose(ops.RngUniform, "onnx")
@decompose(ops.RngNormal, "onnx")
def _for_onnx(b: Builder, node: Node) -> Value | None:
    """Apply computed parameters by arithmetic: ONNX has them as attributes."""
    x, shape = node.operand(0), node.operand(2)
    if None in (splat_value(x), splat_value(node.operand(1))):
        return _by_standard(b, node, x.dtype)
    if shape.is_constant or (shape.producer is not None and shape.producer.op is ops.Shape):
        return None
    drawn = b(node.op, x, node.operand(1), b(ops.Shape, b(ops.BroadcastTo, x, as_int64(b, shape))), **node.attributes)
    drawn.type = node.result.type
    return drawn


@decompose(ops.Multinomial, "onnx")
def _multinomial_counted(b: Builder, node: Node) -> Value | None:
    """Draw a dynamic number of samples: ArgMax of logits + Gumbel noise for each."""
    logits, count = node.operands[:2]
    if logits is None or count is None or static_ints(count) is not None or not logits.dtype.is_float:
        return None
    batch, classes = (b(ops.Shape, logits, axes=(i,)) for i in (0, 1))
    rows = Term(b, b(ops.Reshape, logits, b(ops.Concatenate, batch, [1], classes, axis=0)))
    shape = b(ops.Concatenate, batch, b(ops.Reshape, as_int64(b, count), [1]), classes, axis=0)
    least = b.scalar(float(np.finfo(np.float32).tiny), logits.dtype)
    drawn = Term(b, b(ops.RngUniform, least, b.scalar(1.0, logits.dtype), shape, seed=node.attr("seed")))
    noisy = rows - (-(drawn.apply(ops.Log))).apply(ops.Log)
    return b(ops.ArgMax, noisy.value, axis=2, keepdims=False, dtype=node.attr("dtype"))


@lower_onnx(ops.Multinomial)
def _multinomial_onnx(node: Node, opset: int) -> Form | None:
    count = static_ints(node.operand(1))
    if count is None:
        return None
    attributes = {"sample_size": count[0], "dtype": number_of(node.attr("dtype")), **_seed_onnx(node)}
    return Form("Multinomial", (node.operand(0),), attributes)
