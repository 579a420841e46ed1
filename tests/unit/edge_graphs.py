"""Graphs at the edges of neutral ops that have no samples of operands: of constants, tuples and regions, and random.

A random op is one of several statements whose results do not depend on the numbers drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from onnxtfl.ir.data import Array
from onnxtfl.ir.interpret import run
from onnxtfl.ir.text import parse_graph
from tests.unit.test_decompositions import Built

Case = tuple[str, list[Array]]
"""A graph, and its inputs."""
TYPES = ("float32", "int32", "int64", "uint8", "int8", "bool")
SHAPES = ((), (3,), (2, 3), (0, 3), (2, 0, 3), (2, 1, 3, 2), (2, 1, 2, 3, 2))
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e30, -1e-30)


def edge_graphs(name: str) -> Iterator[Built]:
    """The graphs of an operation of the document, with the results of `run`."""
    for text, given in EDGES[name]():
        graph, inputs = parse_graph(text), [np.asarray(x) for x in given]
        yield Built(graph, next(iter(graph.nodes)), inputs, run(graph, inputs))


def _type(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, dtype)))}>"


def _elements(shape: tuple[int, ...], dtype: str) -> Array:
    """Extremes and special elements."""
    if dtype == "float32":
        return np.resize(np.float32(SPECIAL), shape)
    if dtype == "bool":
        return np.resize([True, False], shape)
    return np.resize(np.asarray([np.iinfo(dtype).min, np.iinfo(dtype).max, 3], dtype), shape)


def _typed() -> Iterator[tuple[str, Array]]:
    """Each shape with an element type, and each element type with a shape: a type, and elements."""
    for i, shape in enumerate(SHAPES):
        dtype = TYPES[i % len(TYPES)]
        yield _type(shape, dtype), _elements(shape, dtype)
    yield _type((2, 3), "float32"), _elements((2, 3), "float32")


def _constants() -> Iterator[Case]:
    for i, (type_, elements) in enumerate(_typed()):
        numbers = ", ".join(str(x).lower() if elements.dtype.kind == "b" else str(x) for x in elements.reshape(-1))
        x = np.float32([i])
        yield f"graph g(%x: tensor<1xfloat32>) -> (%c, %y) {{\n%c = Constant {type_} [{numbers}]\n%y = Neg(%x)\n}}", [x]


def _tuples() -> Iterator[Case]:
    for type_, elements in _typed():
        statements = "%t = Tuple(%x, %y)\n%a = GetTupleElement(%t) {index = 0}\n%b = GetTupleElement(%t) {index = 1}"
        given = [elements, np.asarray([1, 2], np.int32)]
        yield f"graph g(%x: {type_}, %y: tensor<2xint32>) -> (%b, %a) {{\n{statements}\n}}", given
    nested = "%t = Tuple(%x)\n%u = Tuple(%y, %t)\n%a = GetTupleElement(%u) {index = 1}\n"
    nested += "%b = GetTupleElement(%a) {index = 0}"
    yield f"graph g(%x: tensor<float32>, %y: tensor<float32>) -> (%b) {{\n{nested}\n}}", [np.float32(1), np.float32(2)]


def _branches() -> Iterator[Case]:
    for i, (type_, elements) in enumerate(_typed()):
        equal = 'Compare(%a, %a) {comparison_direction = "EQ"}'
        then = f"then_branch = graph a(%a: {type_}) -> (%c) {{\n%c = {equal}\n}}"
        other = f"else_branch = graph b(%a: {type_}) -> (%c) {{\n%b = {equal}\n%c = Not(%b)\n}}"
        text = f"graph g(%p: tensor<bool>, %x: {type_}) -> (%y) {{\n%y = If(%p, %x) {{\n{then},\n{other}}}\n}}"
        yield from ((text, [np.asarray(taken), elements]) for taken in (True, False)[i % 2 :])


def _loops() -> Iterator[Case]:
    """Rounds from none to many; a state of each type."""
    for (type_, elements), rounds in zip(_typed(), (0, 1, 2, 3, 0, 1, 40, 5), strict=True):
        test = f"graph c(%i: tensor<int32>, %n: tensor<int32>, %a: {type_}) -> (%c) {{\n"
        test += '%c = Compare(%i, %n) {comparison_direction = "LT"}\n}'
        body = f"graph b(%i: tensor<int32>, %n: tensor<int32>, %a: {type_}) -> (%j, %n, %b) {{\n"
        body += "%one = constant tensor<int32> [1]\n%j = Add(%i, %one)\n%b = Max(%a, %a)\n}"
        if elements.dtype == bool:
            body = body.replace("Max(%a, %a)", "Not(%a)")
        text = f"graph g(%i: tensor<int32>, %n: tensor<int32>, %x: {type_}) -> (%k, %y) {{\n"
        text += f"%k, %m, %y = While(%i, %n, %x) {{\ncond = {test},\nbody = {body}}}\n}}"
        yield text, [np.int32(0), np.int32(rounds), elements]


def _random(op: str, spread: float, statements: str) -> Iterator[Case]:
    """The shapes of what is drawn; equal numbers without a spread; that the numbers are as `statements` say."""
    head = "graph g(%a: tensor<float32>, %b: tensor<float32>) -> "
    for shape in SHAPES:
        sizes = f"%n = constant tensor<{len(shape)}xint64> [{', '.join(map(str, shape))}]\n"
        drawn = f"{sizes}%y = {op}(%a, %b, %n) {{seed = 7}}\n"
        yield f"{head}(%y) {{\n{drawn}}}", [np.float32(3), np.float32(spread)]
    many = f"%n = constant tensor<2xint64> [100, 200]\n%y = {op}(%a, %b, %n) {{seed = 7}}\n"
    compared = '%c = Compare(%s, %l) {comparison_direction = "LT"}\n'
    yield f"{head}(%c) {{\n{many}{statements}{compared}}}", [np.float32(-1), np.float32(2)]


_MEAN = '%m = Reduce(%y) {kind = "mean", keepdims = false}\n%l = constant tensor<float32> [0.1]\n'
EDGES: dict[str, Callable[[], Iterator[Case]]] = {
    "Constant": _constants,
    "Tuple": _tuples,
    "GetTupleElement": _tuples,
    "If": _branches,
    "While": _loops,
    "RngNormal": lambda: _random("RngNormal", 0, f"{_MEAN}%d = Sub(%m, %a)\n%s = Abs(%d)\n"),
    "RngUniform": lambda: _random(
        "RngUniform", 3, f"{_MEAN}%d = Add(%a, %b)\n%e = Sub(%m, %d)\n%f = Add(%e, %m)\n%s = Abs(%f)\n"
    ),
}
"""By the name in the document; each has six or more."""
