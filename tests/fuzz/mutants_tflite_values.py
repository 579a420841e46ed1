"""Changes of the values of TFLite models: options and constants become extreme, constants inputs and inputs constants,
subgraphs are linked otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.mutants_bytes import Other

Random = random.Random
_SIZES = (0, 1, 2, 3, 7, 255, 256, 1 << 10, 1 << 15, 1 << 16, 1 << 20, 1 << 24, 2**31 - 1)
_INTEGERS = {2: np.int32, 4: np.int64}
"""Numbers of the element types int32 and int64."""
_LARGEST = 1 << 24
"""Bytes of a constant that is made."""
_LINKS = ("condSubgraphIndex", "bodySubgraphIndex", "thenSubgraphIndex", "elseSubgraphIndex", "subgraph")


def change_options(model: Any, other: Other, chance: Random) -> None:
    """Set an option of a node to an extreme value, or the other one."""
    nodes = [node for graph in model.subgraphs for node in graph.operators or [] if node.builtinOptions is not None]
    options = chance.choice(nodes).builtinOptions
    name = chance.choice(sorted(vars(options)))
    value = getattr(options, name)
    if isinstance(value, bool):
        setattr(options, name, not value)
    elif isinstance(value, int):
        setattr(options, name, chance.choice((*_SIZES, -1, -2, -100, -(2**31))))
    elif isinstance(value, float):
        setattr(options, name, chance.choice((0.0, -1.0, 0.5, 1e-38, 1e30, float("inf"), float("nan"))))
    elif isinstance(value, list | np.ndarray):
        setattr(options, name, [chance.choice((*_SIZES, -1)) for _ in range(chance.choice((0, 1, 2, 4, 9)))])


def exchange_operands(model: Any, other: Other, chance: Random) -> None:
    """Exchange an operand of a node and one of another."""
    graph = chance.choice([graph for graph in model.subgraphs if graph.operators])
    nodes = [node for node in graph.operators if node.inputs is not None and len(node.inputs)]
    a, b = chance.choice(nodes), chance.choice(nodes)
    a.inputs, b.inputs = ([int(i) for i in node.inputs] for node in (a, b))
    i, j = chance.randrange(len(a.inputs)), chance.randrange(len(b.inputs))
    a.inputs[i], b.inputs[j] = b.inputs[j], a.inputs[i]


def extreme_constant(model: Any, other: Other, chance: Random) -> None:
    """Set an element of an integer constant, a size or an axis, to an extreme value, or let it have more elements."""
    tensor = chance.choice([t for t in _constants(model) if t.type in _INTEGERS])
    dtype = _INTEGERS[tensor.type]
    array = np.frombuffer(bytes(bytearray(model.buffers[tensor.buffer].data)), dtype).copy()
    if chance.random() < 0.3:
        array = np.full(chance.choice((1, 2, 5, 33, 300, 5000)), min(chance.choice(_SIZES), 9), dtype)
        tensor.shape = [len(array)]
    else:
        array[chance.randrange(array.size)] = chance.choice((*_SIZES, -1, -(2**31)))
    model.buffers.append(type(model.buffers[0])())
    model.buffers[-1].data = np.frombuffer(array.tobytes(), np.uint8)
    tensor.buffer = len(model.buffers) - 1


def constant_as_input(model: Any, other: Other, chance: Random) -> None:
    """Let a constant be known at run time only."""
    graph = model.subgraphs[0]
    constants = [i for i, t in enumerate(graph.tensors) if model.buffers[t.buffer].data is not None]
    at = chance.choice(constants)
    graph.tensors[at].buffer = 0
    graph.inputs = [*map(int, graph.inputs), at]
    if chance.random() < 0.3 and graph.tensors[at].shape is not None:
        graph.tensors[at].shapeSignature = [chance.choice((int(d), -1)) for d in graph.tensors[at].shape]


def input_as_constant(model: Any, other: Other, chance: Random) -> None:
    """Let an input be a constant."""
    graph = model.subgraphs[0]
    graph.inputs = [int(i) for i in graph.inputs]
    at = graph.inputs.pop(chance.randrange(len(graph.inputs)))
    tensor = graph.tensors[at]
    size = int(np.prod(tensor.shape)) * {0: 4, 2: 4, 3: 1, 4: 8, 6: 1, 7: 2, 9: 1}[tensor.type]
    model.buffers.append(type(model.buffers[0])())
    if size <= _LARGEST:  # above it, a constant without its bytes
        model.buffers[-1].data = np.frombuffer(chance.randbytes(size), np.uint8) & chance.choice((0, 1, 127))
    tensor.buffer = len(model.buffers) - 1


def change_size(model: Any, other: Other, chance: Random) -> None:
    """Let a tensor have an axis of another size."""
    tensors = [t for graph in model.subgraphs for t in graph.tensors or [] if t.shape is not None and len(t.shape)]
    tensor = chance.choice(tensors)
    tensor.shape = [int(size) for size in tensor.shape]
    tensor.shape[chance.randrange(len(tensor.shape))] = chance.choice(_SIZES)


def change_links(model: Any, other: Other, chance: Random) -> None:
    """Change which subgraphs a node runs, or the inputs and outputs of a subgraph."""
    nodes = [node.builtinOptions for graph in model.subgraphs for node in graph.operators or []]
    links = [(options, name) for options in nodes for name in _LINKS if hasattr(options, name)]
    graph, kind = chance.choice(model.subgraphs), chance.randrange(4)
    if links and kind == 0:
        setattr(*chance.choice(links), chance.randrange(len(model.subgraphs) + 1))
        return
    name = chance.choice(("inputs", "outputs"))
    values = [int(i) for i in getattr(graph, name)]
    if kind == 1:
        del values[chance.randrange(len(values))]
    elif kind == 2:
        values.append(chance.randrange(len(graph.tensors)))
    else:
        chance.shuffle(values)
        values[0] = chance.choice((values[0], chance.randrange(len(graph.tensors))))
    setattr(graph, name, values)


def _constants(model: Any) -> list[Any]:
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or []]
    return [tensor for tensor in tensors if model.buffers[tensor.buffer].data is not None]


CHANGES: tuple[Callable[[Any, Other, Random], None], ...] = (
    change_options, change_options, exchange_operands, extreme_constant, extreme_constant, constant_as_input,
    constant_as_input, input_as_constant, change_size, change_links,
)  # fmt: skip
