"""Graphs of float tests with some tensors quantized: a pass gives the same stored integers, or leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir.builder import infer
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.interpret import run
from onnxtfl.ir.quantization import Quantization, limits, quantize
from onnxtfl.ir.quantized import may_declare
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.ir.verify import verify

ONE = Quantization("int8", (0.0625,), (3,))
OTHER = Quantization("uint8", (0.046875,), (120,))
MOST = 12
"""Tensors of one graph that are quantized each by itself."""


def check(text: str, step: Callable[[Graph], object], inputs: Callable[[Graph], list[np.ndarray]]) -> None:
    """Run `step` on the graph of `text` with each float tensor quantized, with all, and with all differently."""
    count = len(_candidates(parse_graph(text)))
    choices = [{i: ONE} for i in range(min(count, MOST))]
    choices += [dict.fromkeys(range(count), ONE), {i: (ONE, OTHER)[i % 2] for i in range(count)}]
    for choice in choices:
        graph = parse_graph(text)
        if _declare(graph, choice):
            _compare(graph, step, inputs(graph))


def _candidates(graph: Graph) -> list[Value]:
    """The float32 tensors that no region takes or gives."""
    values: dict[Value, None] = dict.fromkeys(graph.inputs)
    for node in graph.nodes:
        if node.op.dialect == "neutral":
            values.update(dict.fromkeys(v for v in (*node.operands, *node.results) if v is not None))
    held = {v for node in graph.nodes if node.regions for v in (*node.operands, *node.results)}
    return [v for v in values if v not in held and isinstance(v.type, TensorType) and v.dtype is DType.FLOAT32]


def _declare(graph: Graph, choice: dict[int, Quantization]) -> bool:
    """Quantize the candidates that `choice` names, and what is moved out of them; whether any is."""
    wanted = {v: choice[i] for i, v in enumerate(_candidates(graph)) if i in choice}
    for value in [v for v in wanted if v.producer is None]:
        if value.data is not None:
            stored = quantize(value.numpy(), wanted[value])
            value.data = ArrayData(stored, wanted[value].dtype)
        value.type = value.tensor_type.stored_as(wanted[value])
    for node in graph.nodes:
        for result, type_ in zip(node.results, infer(node), strict=True):
            if isinstance(type_, TensorType) and isinstance(result.type, TensorType):
                free = result in wanted and may_declare(node, type_)
                result.type = result.type.stored_as(wanted[result] if free else type_.quantization)
    return any(v.is_quantized for v in _candidates(graph))


def _compare(graph: Graph, step: Callable[[Graph], object], inputs: list[np.ndarray]) -> None:
    verify(graph, "before")
    wanted, types = run(graph, inputs), [v.type for v in graph.outputs]
    try:
        step(graph)
    except UnsupportedError:
        return
    verify(graph, "after")
    for got, want, value, type_ in zip(run(graph, inputs), wanted, graph.outputs, types, strict=True):
        assert value.is_quantized == (isinstance(type_, TensorType) and type_.quantization is not None)
        np.testing.assert_allclose(got.astype(want.dtype), want, rtol=1e-4, atol=1 if value.is_quantized else 1e-4)


def stored_inputs(graph: Graph, sizes: Callable[[Value], list[int]], seed: int) -> Iterator[np.ndarray]:
    """Numbers for the inputs, as they are stored."""
    rng = np.random.default_rng(seed)
    for value in graph.inputs:
        real = rng.standard_normal(sizes(value))
        quantization = value.tensor_type.quantization
        if quantization is None:
            yield real.astype(value.dtype.numpy)
        else:
            low, high = limits(quantization.dtype)
            yield rng.integers(low, high + 1, real.shape).astype(quantization.dtype.numpy)
