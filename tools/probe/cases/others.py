"""Detection, Fourier transforms, subgraphs, stored weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tools.probe.case import ALL, Array, Case, int32, numbers, sizes
from tools.probe.registry import probe

from onnxtfl.ir.graph import Graph, Node, constant
from onnxtfl.ir.op import foreign
from onnxtfl.ir.types import TensorType, dtype_of

RANKS = (1, 0, 2, 3, 4, 5, 6, 7, 8)


def _float(value: float) -> Array:
    return np.asarray(value, np.float32)


@probe("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(op: str) -> Iterator[Case]:
    """Five boxes, of which two overlap others; the number of results constant and computed."""
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 2, 1, 3], [0, 2.1, 1, 3.1], [5, 5, 6, 6]], np.float32)
    scores = np.array([0.9, 0.8, 0.7, 0.95, 0.1], np.float32)
    indices, kept = [3, 0, 0, 0], [0.95, 0.9, 0, 0]
    soft = [_float(0)] if op.endswith("5") else []
    operands = [boxes, scores, int32(4), _float(0.5), _float(0.3), *soft]
    found = [int32(indices), *([np.asarray(kept, np.float32)] if soft else []), int32(2)]
    types = {"T": "float32", "I": "int32", "U": "int32"}
    thresholds = frozenset(range(2, len(operands)))
    yield Case(op, types, operands, found, constants=thresholds, extra={"constant": "max_output_size"})
    yield Case(op, types, operands, found, constants=frozenset({2}), extra={"constant": "max_output_size"})
    yield Case(op, types, operands, found, constants=thresholds - {2}, dynamic=True)


@probe("RFFT2D")
def rfft2d(op: str) -> Iterator[Case]:
    """Over the last two axes, by powers of two."""
    for rank in (2, 3, 4, 5, 6, 7, 8):
        x = numbers("float32", (*sizes(rank - 2), 4, 8))
        y = np.fft.rfft2(x).astype(np.complex64)
        types = {"T": "float32", "I": "int32", "U": "complex64"}
        fixed = {"constant": "fft_length"}
        yield Case(op, types, [x, int32([4, 8])], [y], constants=frozenset({1}), extra=fixed)
        yield Case(op, types, [x, int32([4, 8])], [y], dynamic=True)


@probe("REAL", "IMAG", "COMPLEX_ABS")
def parts_of_complex(op: str) -> Iterator[Case]:
    """complex64 to float32."""
    part = {"REAL": np.real, "IMAG": np.imag, "COMPLEX_ABS": np.abs}[op]
    for rank in RANKS:
        x = numbers("complex64", sizes(rank))
        yield Case(op, {"T": "complex64", "U": "float32"}, [x], [np.asarray(part(x), np.float32)])


@probe("IF")
def branches(op: str) -> Iterator[Case]:
    """One branch passes its operand on, the other returns it reshaped to its own shape."""
    for element in ALL:
        for taken in (False, True):
            for rank in RANKS[2:]:
                x = numbers(element, sizes(rank))
                operands = [np.asarray(taken), x]
                options = {"then_subgraph_index": _reshaping(x), "else_subgraph_index": _reshaping(x)}
                yield Case(op, {"C": "bool", "T": element}, operands, [x], options)


@probe("WHILE")
def loops(op: str) -> Iterator[Case]:
    """Counts to five while something else is handed on."""
    for element in ALL:
        for rank in RANKS[2:]:
            x = numbers(element, sizes(rank))
            options = {"cond_subgraph_index": _below(x), "body_subgraph_index": _counting(x)}
            yield Case(op, {"T": element}, [x, int32(0)], [x, int32(5)], options)


def _type(x: Array) -> TensorType:
    return TensorType(dtype_of(x.dtype), x.shape)


def _reshaping(x: Array) -> Graph:
    graph = Graph("branch")
    value = graph.add_input(_type(x), "x")
    node = graph.insert(Node(foreign("tfl", "RESHAPE"), [value], {"new_shape": x.shape}))
    graph.outputs = [node.add_result(value.type, "y")]
    return graph


def _below(x: Array) -> Graph:
    graph = Graph("below")
    graph.add_input(_type(x), "x")
    count = graph.add_input(_type(int32(0)), "count")
    five = constant(int32(5))
    node = graph.insert(Node(foreign("tfl", "LESS"), [count, five], {}))
    graph.outputs = [node.add_result(_type(np.asarray(True)), "go_on")]
    return graph


def _counting(x: Array) -> Graph:
    graph = Graph("counting")
    value = graph.add_input(_type(x), "x")
    count = graph.add_input(_type(int32(0)), "count")
    node = graph.insert(Node(foreign("tfl", "ADD"), [count, constant(int32(1))], {}))
    graph.outputs = [value, node.add_result(count.type, "next")]
    return graph
