"""What tests of op families share: operands, ops lifted and interpreted, ops brought to what a target takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.interpret import evaluate_node, run
from onnxtfl.ir.op import OPS, Op
from onnxtfl.ir.ops.elementwise import Unary
from onnxtfl.ir.types import DType, TensorType, dtype_of
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.lift import lift
from onnxtfl.targets.onnx import OnnxTarget
from onnxtfl.targets.tflite import TfliteTarget
from tests.unit.tiny_models import onnx_model

TFLITE = TfliteTarget()
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_FINE = [0, 1e-20, 1e-7, 1e-4, 0.1, 0.5, 0.9999999, 1, 1.0000001, 1.5, 2.5, 3, 10, 20, 50, 88, 89, 100, 1e4, 1e10, 1e20]
EXTREMES = np.asarray([s * x for x in [*_FINE, 3e38, np.inf] for s in (1, -1)] + [np.nan], np.float32)
FLOATS = np.concatenate([EXTREMES, np.linspace(-9, 9, 101, dtype=np.float32)])


def floats(*shape: int, seed: int = 0) -> Array:
    """Normally distributed values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(dtype: str, seed: int = 0) -> Array:
    """Integers over the whole range, its ends, and small ones."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(seed)
    wide = rng.integers(limits.min, limits.max, 200, dtype=dtype, endpoint=True)
    small = rng.integers(max(limits.min, -50), 50, 200).astype(dtype)
    ends = np.asarray([limits.min, limits.max, 0, 1, 2, limits.max - 1, limits.max // 2], dtype)
    return rng.permutation(np.concatenate([wide, ends, small]))


def unary_ops(family: str) -> list[type[Op]]:
    """The unary ops of one family that take floats."""
    found = [op for op in OPS.values() if issubclass(op, Unary) and op.__module__.endswith(f".{family}")]
    return [op for op in found if DType.FLOAT32 in op.operands[0].dtypes]


def inferred(op: type[Op], *operands: Any, **attributes: Any) -> str:
    """The type of the first result of `op`; operands are types of inputs, or constants."""
    b = Builder(Graph())
    values = [b.graph.add_input(v) if isinstance(v, TensorType) else v for v in operands]
    return str(b.many(op, *values, **attributes)[0].type)


def lifted_onnx(op: str, opset: int, arrays: Sequence[Array], **attributes: Any) -> Array:
    """The result of a model of one node at `opset`, lifted and interpreted."""
    names = [f"x{i}" for i in range(len(arrays))]
    inputs = [(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, arrays, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)], opset=opset)
    model.graph.output[0].ClearField("type")
    (result,) = run(inspect(model.SerializeToString(), "lifted", Options()), list(arrays))
    return result


def lifted_tfl(op: str, *arrays: Array, result: DType | None = None, constants: int = 0, **options: Any) -> Array:
    """The result of a node of `op`, lifted and interpreted; the last `constants` operands are constants."""
    graph = Graph()
    split = len(arrays) - constants
    inputs = [graph.add_input(TensorType(dtype_of(a.dtype), a.shape), f"x{i}") for i, a in enumerate(arrays[:split])]
    operands = [*inputs, *(constant(a) for a in arrays[split:])]
    type_ = TensorType(result or dtype_of(arrays[0].dtype), None)
    graph.outputs = Builder(graph).foreign("tfl", op, operands, [type_], **options)
    lift(graph, lambda node: None)
    (found,) = run(graph, list(arrays[:split]))
    return found


def onnx_target(opset: int) -> OnnxTarget:
    """ONNX at one opset."""
    return OnnxTarget(opset)


def legalized(
    op: type[Op], operands: Sequence[Array | Value | None], target: Any = TFLITE, **attributes: Any
) -> tuple[Array, Array]:
    """The results of `op`, and those of the target ops that it becomes; arrays are inputs, values constants."""
    graph = Graph()
    b = Builder(graph)
    values = [graph.add_input(_type(x)) if isinstance(x, np.ndarray) else x for x in operands]
    result = b(op, *values, **attributes)
    assert result.producer is not None
    arrays = [x.numpy() if isinstance(x, Value) else x for x in operands]
    (wanted,) = evaluate_node(result.producer, arrays)
    graph.outputs = [result]
    legalize(graph, target)
    (found,) = run(graph, [x for x in operands if isinstance(x, np.ndarray)])
    return wanted, found


def _type(array: Array) -> TensorType:
    return TensorType(dtype_of(array.dtype), array.shape)


def check_legalized(
    op: type[Op],
    operands: Sequence[Array | Value | None],
    rtol: float = 2e-6,
    target: Any = TFLITE,
    attributes: Mapping[str, Any] | None = None,
    atol: float = 1e-37,
) -> None:
    """Integers and bools have to be equal, floats within the tolerances; infinities and NaN where they belong."""
    with np.errstate(all="ignore"):
        wanted, found = legalized(op, operands, target, **(attributes or {}))
    assert wanted.dtype == found.dtype
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, err_msg=op.name)
    else:
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=op.name)
