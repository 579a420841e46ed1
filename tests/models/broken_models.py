"""Models that are broken on purpose at one node, in either format; `tools/broken_models.py` and tests use them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxtfl.formats import files
from onnxtfl.formats.tflite.writer import write as write_tflite
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.op import foreign
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.types import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
Random = np.random.Generator


@dataclass(frozen=True)
class Break:
    """What was broken: `kind` in words, the `node` (name, or that of its first result), its op and its results."""

    kind: str
    node: str
    op: str
    results: tuple[str, ...]


def wrong_elements(array: Array, random: Random, few: bool) -> Array:
    """The array with all elements changed, or three of them by much."""
    wrong = array.copy()
    if array.dtype.kind in "iu":
        flat = wrong.reshape(-1)
        where = random.choice(flat.size, min(3, flat.size), replace=False) if few else np.arange(flat.size)
        top = np.iinfo(array.dtype)
        flat[where] = np.where(flat[where].astype(np.int64) > 0, top.min // 2 + 1, top.max // 2)
        return wrong
    if not few:
        return np.asarray(array * 1.5 + 0.1 * np.abs(array).max(initial=0.01), array.dtype)
    flat = wrong.reshape(-1)
    where = random.choice(flat.size, min(3, flat.size), replace=False)
    flat[where] += np.asarray(3 * max(float(np.abs(array).max()), 0.1), array.dtype)
    return wrong


# ---------------------------------------------------------------------------------------------------------------- ONNX


class OnnxBreaker:
    """Breaks an ONNX model; `breaks` lists the ways, each a function that breaks a copy."""

    def __init__(self, model: onnx.ModelProto, random: Random) -> None:
        self.source, self.random = model, random

    def ways(self) -> Iterator[tuple[str, int]]:
        """Kinds of breaks and the index of the node."""
        weights = {t.name for t in self.source.graph.initializer if t.data_type in (1, 10, 2, 3)}
        shapes = self._shapes()
        for i, node in enumerate(self.source.graph.node):
            yield from ((kind, i) for kind in self._kinds(node, weights, shapes))

    def _shapes(self) -> dict[str, list[int]]:
        try:
            inferred = onnx.shape_inference.infer_shapes(self.source)
        except Exception:
            inferred = self.source
        return {
            v.name: [d.dim_value for d in v.type.tensor_type.shape.dim]
            for v in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
        }

    def _kinds(self, node: onnx.NodeProto, weights: set[str], shapes: dict[str, list[int]]) -> Iterator[str]:
        op = node.op_type
        if op in ("Conv", "Gemm", "MatMul", "Mul", "Add", "LSTM", "GRU", "RNN", "ConvTranspose", "PRelu"):
            if any(name in weights for name in node.input[:3]):
                yield from ("all weights", "a few weights")
            if op in ("Conv", "Gemm") and len(node.input) > 2 and node.input[2] in weights:
                yield "no bias"
        if op in ("Relu", "Sigmoid", "Tanh", "Clip", "HardSwish", "LeakyRelu", "Gelu", "Erf"):
            yield "no activation"
        if op in ("Add", "Sub"):
            yield "Sub for Add"
        if op == "Softmax":
            yield "axis"
        if op == "Concat" and len(node.input) > 1 and len(set(node.input)) > 1:
            yield "order"
        if op == "Transpose" and len(set(shapes.get(node.input[0], []))) < len(shapes.get(node.input[0], [])):
            yield "perm"
        if op in ("Conv", "MaxPool", "AveragePool") and any(_attribute(node, "pads") or ()):
            yield "pads"
        if op in ("LSTM", "GRU") and node.input[1] in weights:
            yield "gates"
        if op in ("QuantizeLinear", "DequantizeLinear") and len(node.input) == 3 and node.input[0] not in weights:
            yield from ("scale", "zero point")

    def broken(self, kind: str, index: int) -> tuple[onnx.ModelProto, Break] | None:
        """A broken copy; None where that cannot be."""
        model = onnx.ModelProto.FromString(self.source.SerializeToString())
        node = model.graph.node[index]
        op, name = node.op_type, node.name or node.output[0]
        if not _ONNX[kind](model, node, self.random):
            return None
        return model, Break(kind, name, op, tuple(node.output))


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def _set(node: onnx.NodeProto, **values: Any) -> None:
    kept = [a for a in node.attribute if a.name not in values]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(k, v) for k, v in values.items())])


def _replace(model: onnx.ModelProto, node: onnx.NodeProto, slot: int, change: Callable[[Array], Array]) -> bool:
    """Let the node read a changed copy of a constant."""
    found = next((t for t in model.graph.initializer if t.name == node.input[slot]), None)
    if found is None:
        return False
    before = numpy_helper.to_array(found)
    after = change(before)
    if after.shape == before.shape and np.array_equal(after, before):
        return False
    fresh = f"{found.name}_broken"
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(after), fresh))
    node.input[slot] = fresh
    return True


def _change_weights(few: bool) -> Callable[[onnx.ModelProto, onnx.NodeProto, Random], bool]:
    def change(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
        weights = {t.name for t in model.graph.initializer}
        slots = [i for i, name in enumerate(node.input[:3]) if name in weights]
        return _replace(model, node, slots[0], lambda a: wrong_elements(a, random, few))

    return change


def _rename(op: str, **attributes: Any) -> Callable[[onnx.ModelProto, onnx.NodeProto, Random], bool]:
    def change(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
        del model, random
        node.op_type = "Add" if node.op_type == op else op
        if op == "Identity":
            del node.attribute[:]
            del node.input[1:]
            node.domain = ""
        return True

    return change


def _axis(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del model, random
    _set(node, axis=1 if _attribute(node, "axis") != 1 else 0)
    return True


def _order(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del model, random
    names = list(node.input)
    node.input[:] = names[::-1]
    return names != names[::-1]


def _perm(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del random
    shapes = OnnxBreaker(model, np.random.default_rng(0))._shapes()
    shape, perm = shapes[node.input[0]], list(_attribute(node, "perm") or [])
    for i in range(len(perm)):
        for j in range(i):
            if shape[perm[i]] == shape[perm[j]] != 1:
                perm[i], perm[j] = perm[j], perm[i]
                _set(node, perm=perm)
                return True
    return False


def _pads(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del model, random
    pads = list(_attribute(node, "pads"))
    half = len(pads) // 2
    moved = [p + min(1, q) for p, q in zip(pads[:half], pads[half:], strict=True)]
    _set(node, pads=[*moved, *(q - min(1, q) for q in pads[half:])])
    return moved != pads[:half]


def _gates(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del random
    count = {"LSTM": 4, "GRU": 3}[node.op_type]

    def change(array: Array) -> Array:
        parts = np.split(array, count, axis=1)
        return np.concatenate([parts[1], parts[0], *parts[2:]], axis=1)

    return _replace(model, node, 1, change)


_ONNX: dict[str, Callable[[onnx.ModelProto, onnx.NodeProto, Random], bool]] = {
    "all weights": _change_weights(False),
    "a few weights": _change_weights(True),
    "no bias": lambda model, node, random: _replace(model, node, 2, np.zeros_like),
    "no activation": _rename("Identity"),
    "Sub for Add": _rename("Sub"),
    "axis": _axis,
    "order": _order,
    "perm": _perm,
    "pads": _pads,
    "gates": _gates,
    "scale": lambda model, node, random: _replace(model, node, 1, lambda a: np.asarray(a * 1.5, a.dtype)),
    "zero point": lambda model, node, random: _replace(
        model, node, 2, lambda a: np.asarray(a.astype(np.int64) + np.where(a > 0, -9, 9), a.dtype)
    ),
}


# -------------------------------------------------------------------------------------------------------------- TFLite


class TfliteBreaker:
    """Breaks a .tflite file with this project's reader and writer."""

    def __init__(self, data: bytes, random: Random) -> None:
        self.data, self.random = data, random

    def ways(self) -> Iterator[tuple[str, int]]:
        """Kinds of breaks and the index of the node in the main graph."""
        for i, node in enumerate(files.read(self.data).main.nodes):
            changing = [v for v in node.operands if v is not None and not v.is_constant]
            if changing:
                yield from ((kind, i) for kind in _tfl_kinds(node))

    def broken(self, kind: str, index: int) -> tuple[bytes, Break] | None:
        """A broken copy; None where that cannot be."""
        model = files.read(self.data)
        node = list(model.main.nodes)[index]
        found = Break(kind, node.results[0].name or "", node.op.name[4:], tuple(r.name or "" for r in node.results))
        if not _TFLITE[kind](node, self.random):
            return None
        out = io.BytesIO()
        write_tflite(model, out)
        return out.getvalue(), found


_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL", "MUL", "ADD", "SUB", "TRANSPOSE_CONV")


def _tfl_kinds(node: Node) -> Iterator[str]:
    op = node.op.name.removeprefix("tfl.")
    if op in _WEIGHTED and _weight(node) is not None:
        yield from ("all weights", "a few weights")
        yield from ("one channel", "two channels exchanged")
    bias = node.operands[2] if op in _WEIGHTED[:3] and len(node.operands) > 2 else None
    if bias is not None and bias.is_constant and np.any(bias.stored()):
        yield from ("no bias", "a bias off by a step")
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
    node.op = foreign("tfl", other, node.op.version)
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
    node.op = foreign("tfl", _COMPARISONS[node.op.name[4:]], node.op.version)
    return True


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
    "pad value": _pad_value,
    "scale": _requantized(1.05, 0),
    "zero point": _requantized(1.0, 1),
    "axis": _axis,
    "epsilon": _larger_epsilon,
}
