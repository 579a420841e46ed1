"""TFLite models that are broken on purpose at one node."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from onnxtfl.formats import files
from onnxtfl.formats.tflite.writer import write as write_tflite
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import foreign_op
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType
from tests.models.broken_models import Array, Break, Random, wrong_elements


class TfliteBreaker:
    """Breaks a .tflite file with this project's reader and writer."""

    def __init__(self, data: bytes, random: Random) -> None:
        self.data, self.random = data, random

    def ways(self) -> Iterator[tuple[str, int]]:
        """Kinds of breaks and the index of the node among those of the main graph and of its regions."""
        for i, (_, node) in enumerate(_all_nodes(files.read(self.data).main)):
            changing = [v for v in node.present_operands if not v.is_constant]
            if changing:
                yield from ((kind, i) for kind in _tfl_kinds(node))

    def broken(self, kind: str, index: int) -> tuple[bytes, Break] | None:
        """A broken copy; None where that cannot be."""
        model, seed = files.read(self.data), int(self.random.integers(1 << 30))
        nodes = list(_all_nodes(model.main))
        outer, node = nodes[index]
        results = [*node.results, *([] if outer is node else outer.results)]
        found = Break(kind, node.results[0].name or "", node.op.name[4:], tuple(r.name or "" for r in results))
        same = [n for o, n in nodes if n is node or (outer is not node and o is not n and _same_place(n, node))]
        changed = [_TFLITE[kind](n, np.random.default_rng(seed)) for n in same]
        if not all(changed):
            return None
        out = io.BytesIO()
        write_tflite(model, out)
        return out.getvalue(), found


def _all_nodes(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Each node of the graph and of its regions, after the node of the graph that it is in (or is)."""
    for outer in graph.nodes:
        yield outer, outer
        for region in dict.fromkeys(outer.regions):
            yield from ((outer, node) for node in region.walk())


def _same_place(a: Node, b: Node) -> bool:
    """Whether both are the same op of one subgraph of the file, which several nodes share."""
    return a.op.name == b.op.name and [r.name for r in a.results] == [r.name for r in b.results]


_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "MUL", "ADD", "SUB", "TRANSPOSE_CONV")


def _tfl_kinds(node: Node) -> Iterator[str]:
    op = node.op.name.removeprefix("tfl.")
    if op in _WEIGHTED and _weight(node) is not None:
        yield from ("all weights", "a few weights")
        yield from ("one channel", "two channels exchanged")
    bias = node.operands[2] if op in _WEIGHTED[:3] and len(node.operands) > 2 else None
    if bias is not None and bias.is_constant and np.any(bias.stored()):
        yield from ("no bias", "a bias off by a step")
        if _quantization(node.operands[1]) is not None:
            yield "scale of weights"
    if op in ("GATHER", "EMBEDDING_LOOKUP") and _table(node) is not None:
        yield "a row of a table"
    if op in _COMPARISONS:
        yield "comparison"
    if op == "IF":
        yield "branches exchanged"
    if op in ("PADV2", "MIRROR_PAD"):
        yield "pad value"
    if op in _EXACT_SCALES and _is_stepped(node):
        yield from ("scale", "zero point")
    if op in ("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "ARG_MAX", "ARG_MIN") and _other_axis(node) is not None:
        yield "axis"
    if op in ("ADD", "MAXIMUM") and _epsilon(node) is not None:
        yield "epsilon"
    if node.attributes.get("fused_activation_function") not in (None, "NONE"):
        yield "no activation"
    if op in _OTHER_FUNCTION and _quantization(node.results[0]) is None:
        yield "another activation"
    if "stride_w" in node.attributes and op != "TRANSPOSE_CONV":
        yield from ("stride", "padding")
    if op.startswith("NON_MAX_SUPPRESSION"):
        yield "threshold"
    if op in ("ADD", "SUB"):
        yield "SUB for ADD"
    if op == "SOFTMAX":
        yield "beta"
    if op == "CONCATENATION":
        yield "order"
    if op == "TRANSPOSE" and _perm_swaps(node):
        yield "perm"
    if op == "PAD" and node.operand(1).is_constant:
        yield "pads"


_COMPARISONS = {"GREATER": "GREATER_EQUAL", "LESS": "LESS_EQUAL", "GREATER_EQUAL": "GREATER", "LESS_EQUAL": "LESS"}
_OTHER_FUNCTION = {"LOGISTIC": "TANH", "TANH": "LOGISTIC", "RELU": "RELU6", "RELU6": "RELU", "HARD_SWISH": "RELU"}
_EXACT_SCALES = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "BATCH_MATMUL", "SUB")
"""Ops whose result may have any scale."""
_SMALL = 1e-3
"""The largest constant that is an epsilon."""


def _table(node: Node) -> int | None:
    """The operand that is a table of several rows of real values."""
    for slot in (0, 1):
        value = node.operand(slot)
        if (
            value.is_constant
            and value.stored().ndim >= 2
            and value.stored().dtype.kind in "fi"
            and value.dtype.is_float
        ):
            return slot
    return None


def _quantization(value: Value) -> Quantization | None:
    return value.type.quantization if isinstance(value.type, TensorType) else None


def _is_stepped(node: Node) -> bool:
    """Whether the result is quantized with one scale, and read by another op, so that the file still loads."""
    found = _quantization(node.results[0])
    return found is not None and found.per_tensor and found.scales[0] != 0


def _other_axis(node: Node) -> Array | None:
    """The axes, moved to another axis of the same size, so that the shape stays."""
    axes, shape = node.operand(1), node.operand(0).tensor_type.shape
    if not axes.is_constant or shape is None or axes.stored().size != 1:
        return None
    axis = int(axes.stored().reshape(-1)[0]) % len(shape)
    found = next((i for i, d in enumerate(shape) if i != axis and d == shape[axis] != 1), None)
    return None if found is None else np.full_like(axes.stored(), found)


def _epsilon(node: Node) -> int | None:
    """The operand that is a small positive constant."""
    for slot in (0, 1):
        value = node.operand(slot)
        array = value.stored() if value.is_constant else None
        if array is not None and array.dtype.kind == "f" and array.size == 1 and 0 < float(array.max()) <= _SMALL:
            return slot
    return None


def _weight(node: Node) -> int | None:
    """The operand that is a constant of floats or stored integers."""
    for i, value in enumerate(node.operands[:3]):
        is_weight = value is not None and value.is_constant and isinstance(value.type, TensorType)
        if is_weight and value.type.dtype.is_float and value.stored().size > 1:
            return i
    return None


def _exchange(node: Node, slot: int, change: Callable[[Array], Array]) -> bool:
    value = node.operand(slot)
    before = value.stored()
    after = np.ascontiguousarray(change(before))
    if np.array_equal(before, after):
        return False
    assert isinstance(value.type, TensorType) and value.data is not None
    node.set_operand(slot, constant(ArrayData(after, value.data.dtype), type_=value.type))
    return True


def _tfl_weights(few: bool) -> Callable[[Node, Random], bool]:
    def change(node: Node, random: Random) -> bool:
        slot = _weight(node)
        return slot is not None and _exchange(node, slot, lambda a: wrong_elements(a, random, few))

    return change


def _no_activation(node: Node, random: Random) -> bool:
    del random
    node.attributes["fused_activation_function"] = "NONE"
    return True


def _sub(node: Node, random: Random) -> bool:
    del random
    other = "SUB" if node.op.name == "tfl.ADD" else "ADD"
    node.attributes = {k: v for k, v in node.attributes.items() if k == "fused_activation_function"}
    node.op = foreign_op("tfl", other, node.op.version)
    return True


def _beta(node: Node, random: Random) -> bool:
    del random
    node.attributes["beta"] = 2.0
    return True


def _tfl_order(node: Node, random: Random) -> bool:
    del random
    values: list[Value | None] = list(node.operands)
    shapes = [v.type.shape for v in values if v is not None and isinstance(v.type, TensorType)]
    for i, value in enumerate(values[::-1]):
        node.set_operand(i, value)
    return values != values[::-1] and len(shapes) > 1


def _perm_swaps(node: Node) -> list[Array]:
    shape = node.operand(0).type.shape if isinstance(node.operand(0).type, TensorType) else None
    if not node.operand(1).is_constant or shape is None:
        return []
    perm, found = node.operand(1).stored(), []
    for i in range(len(perm)):
        for j in range(i):
            if shape[perm[i]] == shape[perm[j]] != 1:
                swapped = perm.copy()
                swapped[[i, j]] = perm[[j, i]]
                found.append(swapped)
    return found


def _tfl_pads(node: Node, random: Random) -> bool:
    del random

    def change(pads: Array) -> Array:
        shift = np.minimum(1, pads[:, 1])
        return np.stack([pads[:, 0] + shift, pads[:, 1] - shift], axis=1).astype(pads.dtype)

    return _exchange(node, 1, change)


def _one_channel(node: Node, random: Random) -> bool:
    """The weights of one output channel get the other sign."""
    return _change_channels(node, lambda a, axis: _negated(a, axis, int(random.integers(a.shape[axis]))))


def _two_channels(node: Node, random: Random) -> bool:
    def exchanged(array: Array, axis: int) -> Array:
        i, j = random.choice(array.shape[axis], 2, replace=False) if array.shape[axis] > 1 else (0, 0)
        order = np.arange(array.shape[axis])
        order[[i, j]] = order[[j, i]]
        return np.take(array, order, axis)

    return _change_channels(node, exchanged)


def _change_channels(node: Node, change: Callable[[Array, int], Array]) -> bool:
    slot = _weight(node)
    last = node.op.name in ("tfl.DEPTHWISE_CONV_2D", "tfl.BATCH_MATMUL", "tfl.MUL", "tfl.ADD", "tfl.SUB")
    return slot is not None and _exchange(node, slot, lambda a: change(a, a.ndim - 1 if last else 0))


def _negated(array: Array, axis: int, channel: int) -> Array:
    wrong = np.moveaxis(array.copy(), axis, 0)
    wrong[channel] = np.clip(-wrong[channel].astype(np.float64), *_limits(array)).astype(array.dtype)
    return np.moveaxis(wrong, 0, axis)


def _limits(array: Array) -> tuple[float, float]:
    return (-127.0, 127.0) if array.dtype.kind in "iu" else (-np.inf, np.inf)


def _bias_step(node: Node, random: Random) -> bool:
    """0.9 of a step of the result; of float ops a hundredth of the largest bias."""
    del random
    result = _quantization(node.results[0])
    if result is None:
        return _exchange(node, 2, lambda a: (a + 0.01 * np.abs(a).max() + 1e-3).astype(a.dtype))
    bias = _quantization(node.operand(2))
    x, w = _quantization(node.operand(0)), _quantization(node.operand(1))
    if x is None or w is None:
        return False
    scales = np.asarray(x.scales[0] * np.asarray(w.scales)) if bias is None else np.asarray(bias.scales)
    return _exchange(node, 2, lambda a: (a + np.rint(0.9 * result.scales[0] / scales)).astype(a.dtype))


def _compare(node: Node, random: Random) -> bool:
    del random
    node.op = foreign_op("tfl", _COMPARISONS[node.op.name[4:]], node.op.version)
    return True


def _other_function(node: Node, random: Random) -> bool:
    del random
    node.op = foreign_op("tfl", _OTHER_FUNCTION[node.op.name[4:]], node.op.version)
    return True


def _stride(node: Node, random: Random) -> bool:
    """Strides of 1 become 2, others 1; the broken model may not load."""
    del random
    for name in ("stride_w", "stride_h"):
        node.attributes[name] = 2 if node.attributes[name] == 1 else 1
    return True


def _padding(node: Node, random: Random) -> bool:
    del random
    node.attributes["padding"] = "VALID" if node.attributes["padding"] == "SAME" else "SAME"
    return True


def _threshold(node: Node, random: Random) -> bool:
    """The largest overlap, 0.6 times as large."""
    del random
    return node.operand(3).is_constant and _exchange(node, 3, lambda a: np.asarray(a * 0.6, a.dtype))


def _branches(node: Node, random: Random) -> bool:
    del random
    names = [name for name, value in node.attributes.items() if isinstance(value, Graph)]
    first, second = names[:2]
    node.attributes[first], node.attributes[second] = node.attributes[second], node.attributes[first]
    return True


def _pad_value(node: Node, random: Random) -> bool:
    del random
    if node.op.name == "tfl.MIRROR_PAD":
        node.attributes["mode"] = "SYMMETRIC" if node.attributes.get("mode") == "REFLECT" else "REFLECT"
        return True
    return node.operand(2).is_constant and _exchange(node, 2, lambda a: (a + 1).astype(a.dtype))


def _requantized(scale: float, zero: int) -> Callable[[Node, Random], bool]:
    def change(node: Node, random: Random) -> bool:
        del random
        value, found = node.results[0], _quantization(node.results[0])
        assert found is not None and isinstance(value.type, TensorType)
        if found.storage == "int16" and zero:
            return False
        points = tuple(point + zero if point < 100 else point - zero for point in found.zero_points)
        scales = tuple(one * scale for one in found.scales)
        value.type = replace(value.type, quantization=replace(found, scales=scales, zero_points=points))
        return True

    return change


def _weight_scale(node: Node, random: Random) -> bool:
    """The scale of the weights of one channel (of all, where it is one) is 1.3 times as large."""
    value = node.operand(1)
    found = _quantization(value)
    assert found is not None and isinstance(value.type, TensorType)
    scales = list(found.scales)
    scales[int(random.integers(len(scales)))] *= 1.3
    type_ = replace(value.type, quantization=replace(found, scales=tuple(scales)))
    if value.data is not None:
        node.set_operand(1, constant(value.data, type_=type_))
    return value.data is not None


def _row(node: Node, random: Random) -> bool:
    slot = _table(node)

    def change(array: Array) -> Array:
        return _negated(array, 0, int(random.integers(array.shape[0])))

    return slot is not None and _exchange(node, slot, change)


def _axis(node: Node, random: Random) -> bool:
    del random
    other = _other_axis(node)
    return other is not None and _exchange(node, 1, lambda a: other)


def _larger_epsilon(node: Node, random: Random) -> bool:
    del random
    slot = _epsilon(node)
    return slot is not None and _exchange(node, slot, lambda a: (a * 1000).astype(a.dtype))


_TFLITE: dict[str, Callable[[Node, Random], bool]] = {
    "all weights": _tfl_weights(False),
    "a few weights": _tfl_weights(True),
    "no bias": lambda node, random: _exchange(node, 2, np.zeros_like),
    "no activation": _no_activation,
    "SUB for ADD": _sub,
    "beta": _beta,
    "order": _tfl_order,
    "perm": lambda node, random: _exchange(node, 1, lambda a: _perm_swaps(node)[0]),
    "pads": _tfl_pads,
    "one channel": _one_channel,
    "two channels exchanged": _two_channels,
    "a bias off by a step": _bias_step,
    "a row of a table": _row,
    "comparison": _compare,
    "branches exchanged": _branches,
    "another activation": _other_function,
    "stride": _stride,
    "padding": _padding,
    "threshold": _threshold,
    "pad value": _pad_value,
    "scale": _requantized(1.05, 0),
    "scale of weights": _weight_scale,
    "zero point": _requantized(1.0, 1),
    "axis": _axis,
    "epsilon": _larger_epsilon,
}
