"""Groups of nodes as exporters write them, for random ONNX graphs: what passes recognize and make one op of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs_networks import window_of
from tests.fuzz.graphs_onnx import Drawing

Step = Callable[[Drawing], Any]
Link = tuple[str, Sequence[str], dict[str, Any]]


def chain(g: Drawing, x: str, *links: Link) -> str:
    """Nodes one after the other, each with more operands and attributes; the result, "" where one does not run."""
    for op, operands, attributes in links:
        found = g.node(op, [x, *operands], **attributes)
        if not found:
            return ""
        (x,) = found
    return x


def _small(g: Drawing, *shape: int) -> str:
    return g.constant(g.random.uniform(-1, 1, shape).astype(np.float32))


def _sizes(g: Drawing, *sizes: int) -> str:
    return g.constant(sizes, np.int64)


def _linear(g: Drawing) -> None:
    """MatMul, bias and activation."""
    x = g.value(("float32",), (1, 2, 3, 4))
    g.fix(x, -1)
    columns = 1 + g.below(5)
    links: list[Link] = [("MatMul", [_small(g, g.array(x).shape[-1], columns)], {}), ("Add", [_small(g, columns)], {})]
    chain(g, x, *links, (g.choose(("Relu", "Tanh", "Sigmoid")), [], {}))


def _convolution(g: Drawing) -> None:
    """Padding, convolution, normalization and activation, of which some are absent."""
    x = g.value(("float32",), (3, 4, 4, 5))
    g.fix(x, 1)
    channels, spatial, outputs = g.array(x).shape[1], g.array(x).shape[2:], 1 + g.below(4)
    window = window_of(g, spatial)
    ones = [0, 0, *(1 for _ in spatial)]
    links: list[Link] = [("Pad", [_sizes(g, *ones, *ones)], {})] if g.chance(0.3) else []
    links.append(("Conv", [_small(g, outputs, channels, *window["kernel_shape"])], window))
    if g.below(2):
        variance = g.constant(g.random.uniform(0.5, 2, outputs).astype(np.float32))
        links.append(("BatchNormalization", [*(_small(g, outputs) for _ in range(3)), variance], {}))
    if g.below(2):
        links.append((g.choose(("Relu", "Sigmoid", "HardSwish")), [], {}))
    if g.chance(0.2):
        links.append(("Clip", [g.constant(v, np.float32) for v in (0, 6)], {}))
    chain(g, x, *links)


def _channels_last(g: Drawing) -> None:
    """Transpose to channels-last, an op, and transpose back."""
    x = g.value(("float32",), (4,))
    g.fix(x, 1)
    channels = g.array(x).shape[1]
    op: Link = g.choose((
        ("MatMul", [_small(g, channels, channels)], {}), ("Add", [_small(g, channels)], {}),
        ("Softmax", [], {"axis": -1}),
    ))  # fmt: skip
    chain(g, x, ("Transpose", [], {"perm": [0, 2, 3, 1]}), op, ("Transpose", [], {"perm": [0, 3, 1, 2]}))


def _attention(g: Drawing) -> None:
    """A value's products with itself, as weights of itself."""
    x = g.value(("float32",), (3, 4))
    rank = g.rank(x)
    transposed = g.node("Transpose", [x], perm=[*range(rank - 2), rank - 1, rank - 2])
    if transposed:
        chain(g, x, ("MatMul", transposed, {}), ("Tanh", [], {}), ("Softmax", [], {"axis": -1}), ("MatMul", [x], {}))


def _mean(g: Drawing, axis: int) -> Link:
    if g.opset >= 18:
        return "ReduceMean", [_sizes(g, axis)], {}
    return "ReduceMean", [], {"axes": [axis]}


def _layer_norm(g: Drawing) -> None:
    """LayerNormalization as older exporters decompose it."""
    x = g.value(("float32",), (2, 3, 4))
    mean = chain(g, x, _mean(g, -1))
    centered = mean and chain(g, x, ("Sub", [mean], {}))
    epsilon = g.constant(0.1, np.float32)
    square: Link = "Pow", [g.constant(2, np.float32)], {}
    root = centered and chain(g, centered, square, _mean(g, -1), ("Add", [epsilon], {}), ("Sqrt", [], {}))
    if root:
        chain(g, centered, ("Div", [root], {}))


def _gated(g: Drawing) -> None:
    """A value times its sigmoid."""
    x = g.value(("float32",))
    if gate := g.node("Sigmoid", [x]):
        g.node("Mul", [x, *gate] if g.below(2) else [*gate, x])


def _squeeze_excite(g: Drawing) -> None:
    """A value times gates that are computed of the means of its channels."""
    x = g.value(("float32",), (4,))
    g.fix(x, 1)
    channels = g.array(x).shape[1]
    down, up = _small(g, 2, channels, 1, 1), _small(g, channels, 2, 1, 1)
    means: Link = "GlobalAveragePool", [], {}
    gate = chain(g, x, means, ("Conv", [down, _small(g, 2)], {}), ("Relu", [], {}), ("Conv", [up], {}))
    if gate:
        chain(g, gate, ("Sigmoid", [], {}), ("Mul", [x], {}))


def _shuffle(g: Drawing) -> None:
    """DepthToSpace, or an exchange of groups of channels, as exporters decompose them."""
    n, c, h, w = 1 + g.below(2), 1 + g.below(2), 1 + g.below(3), 1 + g.below(4)
    x = g.value(("float32", "int32"), shape=(n, 4 * c, h, w))
    g.fix(x)
    if g.below(2):
        apart, perm, whole = (n, c, 2, 2, h, w), [0, 1, 4, 2, 5, 3], (n, c, 2 * h, 2 * w)
    else:
        apart, perm, whole = (n, 2, 2 * c, h, w), [0, 2, 1, 3, 4], (n, 4 * c, h, w)
    parts: Link = "Reshape", [_sizes(g, *apart)], {}
    chain(g, x, parts, ("Transpose", [], {"perm": perm}), ("Reshape", [_sizes(g, *whole)], {}))


def _gather_at_remainder(g: Drawing) -> None:
    """Gather at indices that are computed."""
    x = g.value(("float32", "int32"), (1, 2, 3))
    g.fix(x)
    axis = g.below(g.rank(x))
    size = g.array(x).shape[axis]
    indices = g.node("Mod", [g.value(("int64",), (0, 1, 2)), g.constant(max(size, 1), np.int64)])
    if indices:
        g.node("Gather", [x, *indices], axis=axis)


def _states_of_layers(g: Drawing) -> None:
    """A recurrent layer with an initial state, whose directions are joined, and a second one on its result."""
    steps, batch, features = 1 + g.below(5), 1 + g.below(3), 1 + g.below(4)
    x = g.value(("float32",), shape=(steps, batch, features))
    g.fix(x, 1, 2)
    for _ in range(2):
        op, hidden = g.choose(("LSTM", "GRU", "RNN")), 1 + g.below(4)
        direction = g.choose(("forward", "reverse", "bidirectional"))
        ways, rows = 1 + (direction == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
        weights = [_small(g, ways, rows, g.array(x).shape[2]), _small(g, ways, rows, hidden)]
        state = ["", "", _small(g, ways, batch, hidden)] if g.below(2) else []
        more = {"linear_before_reset": g.below(2)} if op == "GRU" else {}
        found = g.node(op, [x, *weights, *state], 2, hidden_size=hidden, direction=direction, **more)
        joined: Link = "Reshape", [_sizes(g, 0, 0, ways * hidden)], {}
        x = chain(g, found[0], ("Transpose", [], {"perm": [0, 2, 1, 3]}), joined) if found else ""
        if not x:
            return


STEPS: dict[str, Step] = {
    "MatMul, bias, activation": _linear, "Conv, normalization, activation": _convolution,
    "channels last": _channels_last, "products with itself": _attention, "LayerNormalization of nodes": _layer_norm,
    "Sigmoid times": _gated, "gates of channels": _squeeze_excite, "DepthToSpace of nodes": _shuffle,
    "Gather at Mod": _gather_at_remainder, "layers in a row": _states_of_layers,
}  # fmt: skip
