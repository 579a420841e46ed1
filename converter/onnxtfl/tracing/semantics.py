"""Tensors inside of a model as the neutral ops compute them, by the semantics of an op instead of its kernel."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.quantization import Quantization, dequantize, quantize, with_other_sign
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.pipeline import lifted_where_possible
from onnxtfl.tracing.trace import InnerModel, isolate, numbered

MOST_ELEMENTS = 1 << 22
MOST_NODES = 400


def neutral_values(
    model: InnerModel, number: int, fed: Mapping[int, Array], grid: Quantization | None
) -> tuple[list[Array], Array | None]:
    """All values that the neutral ops compute from the tensors `fed` for a tensor of `model`, and the value of that
    tensor.

    `grid`: how the tensor is stored by the model that these are for; real values are rounded to it too. As many as can
    be evaluated.
    """
    part = model.read()
    values = numbered(part.main)
    arrays = isolate(part, {values[i]: array for i, array in fed.items()}, [values[number]])
    graph = lifted_where_possible(part)
    given = [*(np.asarray(v) for v in model.given), *arrays]
    known = dict(zip(graph.inputs, given, strict=False))
    if len(list(graph.nodes)) <= MOST_NODES:
        _evaluate(graph, known)
    final = known.get(graph.outputs[0])
    found = [form for value, array in known.items() for form in forms(array, quantization_of(value))]
    found += [dequantize(quantize(v, grid), grid) for v in found if v.dtype.kind == "f"] if grid else []
    return found, None if final is None else as_real(final, quantization_of(graph.outputs[0]))


def _evaluate(graph: Graph, known: dict[Value, Array]) -> None:
    """Add to `known` the results of the nodes, as many as can be evaluated."""
    for node in graph.nodes:
        operands = [None if v is None else v.stored() if v.is_constant else known.get(v) for v in node.operands]
        absent = [v for v, array in zip(node.operands, operands, strict=True) if v is not None and array is None]
        sizes = [math.prod(array.shape) for array in operands if array is not None]
        if absent or not node.is_pure or sum(sizes) > MOST_ELEMENTS:
            continue
        with contextlib.suppress(Exception):  # a node that cannot be evaluated tells nothing
            known.update(zip(node.results, evaluate_node(node, operands), strict=True))


def forms(array: Array, grid: Quantization | None) -> list[Array]:
    """The real values of a stored array; also the stored integers, signed and unsigned, since ONNX tensors have no
    scales.
    """
    found = [as_real(array, grid)]
    if array.dtype.name not in ("int8", "uint8"):
        return found
    return [*found, array, with_other_sign(array)]


def as_real(array: Array, grid: Quantization | None) -> Array:
    return dequantize(array, grid) if grid is not None and array.dtype.kind in "iu" else array
