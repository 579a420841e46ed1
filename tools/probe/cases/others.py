"""Non-maximum suppression, Fourier transforms, complex and random values, control flow, quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tools.probe.case import ALL, NUMBERS, Array, Case, draw, int32, sizes
from tools.probe.quantized import STORAGES, parameters, symmetric
from tools.probe.registry import probe

from onnxtfl.ir.graph import Graph, Node, constant
from onnxtfl.ir.op import foreign
from onnxtfl.ir.quantization import Quantization, dequantize, quantize
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
    """Over the last two axes, whose sizes are powers of two."""
    for rank in (2, 3, 4, 5, 6, 7, 8):
        x = draw("float32", (*sizes(rank - 2), 4, 8))
        y = np.fft.rfft2(x).astype(np.complex64)
        types = {"T": "float32", "I": "int32", "U": "complex64"}
        fixed = {"constant": "fft_length"}
        yield Case(op, types, [x, int32([4, 8])], [y], constants=frozenset({1}), extra=fixed)
        yield Case(op, types, [x, int32([4, 8])], [y], dynamic=True)


@probe("REAL", "IMAG", "COMPLEX_ABS")
def parts_of_complex(op: str) -> Iterator[Case]:
    """complex64 to float32."""
    parts: dict[str, Callable[[Array], Any]] = {"REAL": np.real, "IMAG": np.imag, "COMPLEX_ABS": np.abs}
    for rank in RANKS:
        x = draw("complex64", sizes(rank))
        yield Case(op, {"T": "complex64", "U": "float32"}, [x], [np.asarray(parts[op](x), np.float32)])


@probe("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random_numbers(op: str) -> Iterator[Case]:
    """Only shapes are compared."""
    for index in ("int32", "int64"):
        for rank in RANKS:
            shape, y = np.asarray(sizes(rank), index), np.zeros(sizes(rank), np.float32)
            types, options = {"I": index, "T": "float32"}, {"seed": 3, "seed2": 5}
            fixed = {"constant": "shape"}
            yield Case(op, types, [shape], [y], options, constants=frozenset({0}), extra=fixed, tolerance=np.inf)
            yield Case(op, types, [shape], [y], options, dynamic=True, tolerance=np.inf)


@probe("MULTINOMIAL")
def multinomial(op: str) -> Iterator[Case]:
    """Only shapes are compared."""
    for result in ("int32", "int64"):
        types = {"T": "float32", "I": "int32", "U": result}
        operands, y = [draw("float32", (2, 3)), int32(5)], np.zeros((2, 5), result)
        options = {"seed": 3, "seed2": 5}
        yield Case(op, types, operands, [y], options, constants=frozenset({1}), tolerance=np.inf)


@probe("DILATE")
def dilate(op: str) -> Iterator[Case]:
    """Fill values between the elements along some axes."""
    for element in (*NUMBERS, "bool"):
        for rank in RANKS[2:]:
            x, filler = draw(element, sizes(rank)), draw(element, (), seed="v")
            steps = [1 + i % 3 for i in range(rank)]
            y = np.full([(d - 1) * s + 1 for d, s in zip(x.shape, steps, strict=True)], filler, filler.dtype)
            y[tuple(slice(None, None, s) for s in steps)] = x
            types, fixed = {"T": element, "I": "int32"}, {"constant": "dilations"}
            yield Case(op, types, [x, int32(steps), filler], [y], constants=frozenset({1, 2}), extra=fixed)
            yield Case(op, types, [x, int32(steps), filler], [y], dynamic=True)


@probe("IF")
def if_op(op: str) -> Iterator[Case]:
    """Both branches reshape their operand to its own shape."""
    for element in ALL:
        for condition in (False, True):
            for rank in RANKS:
                x = draw(element, sizes(rank))
                operands = [np.asarray(condition), x]
                options = {"then_subgraph_index": _reshaping(x), "else_subgraph_index": _reshaping(x)}
                yield Case(op, {"C": "bool", "T": element}, operands, [x], options)


@probe("WHILE")
def while_op(op: str) -> Iterator[Case]:
    """Counts to five, with another loop-carried value."""
    for element in ALL:
        for rank in RANKS:
            x = draw(element, sizes(rank))
            options = {"cond_subgraph_index": _below(x), "body_subgraph_index": _counting(x)}
            yield Case(op, {"T": element}, [x, int32(0)], [x, int32(5)], options)


@probe("QUANTIZE", "DEQUANTIZE")
def quantization(op: str) -> Iterator[Case]:
    """Each storage, per tensor and along the last axis."""
    for storage in (*STORAGES, "int32"):
        for rank in RANKS:
            x = draw("float32", sizes(rank), low=-3, high=3)
            for axis in (None, rank - 1) if rank and storage == "int8" else (None,):
                found = parameters(x, storage) if axis is None else symmetric(x, storage, axis)
                if storage != "int32" or op == "DEQUANTIZE":
                    yield _converted(op, x, found)
    if op == "QUANTIZE":
        for source in STORAGES:
            for target in STORAGES:
                for rank in RANKS:
                    yield _requantized(op, draw("float32", sizes(rank)), source, target)


def _converted(op: str, x: Array, found: Quantization) -> Case:
    stored, real = quantize(x, found), dequantize(quantize(x, found), found)
    kind, extra = f"q{found.storage}", {} if found.per_tensor else {"per_axis": "U" if op == "QUANTIZE" else "T"}
    if op == "QUANTIZE":
        places = {("results", 0): found}
        return Case(op, {"T": "float32", "U": kind}, [x], [stored], extra=extra, quantizations=places)
    places = {("operands", 0): found}
    return Case(op, {"T": kind, "U": "float32"}, [stored], [real], extra=extra, quantizations=places)


def _requantized(op: str, x: Array, source: str, target: str) -> Case:
    before, after = parameters(x, source), parameters(x * 1.4, target)
    stored = quantize(x, before)
    y = quantize(dequantize(stored, before), after)
    places = {("operands", 0): before, ("results", 0): after}
    return Case(op, {"T": f"q{source}", "U": f"q{target}"}, [stored], [y], quantizations=places)


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
