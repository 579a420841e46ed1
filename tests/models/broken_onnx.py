"""ONNX models that are broken on purpose at one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.models.broken_models import Array, Break, Random, wrong_elements


class OnnxBreaker:
    """Breaks an ONNX model; `breaks` lists the ways, each a function that breaks a copy."""

    def __init__(self, model: onnx.ModelProto, random: Random) -> None:
        self.source, self.random = model, random

    def ways(self) -> Iterator[tuple[str, int]]:
        """Kinds of breaks and the index of the node, of those whose result is no constant."""
        weights = {t.name for t in self.source.graph.initializer if t.data_type in (1, 10, 2, 3)}
        shapes, changing = self._shapes(), {value.name for value in self.source.graph.input}
        changing -= {t.name for t in self.source.graph.initializer}
        for i, node in enumerate(self.source.graph.node):
            if changing & {*node.input} or any(a.HasField("g") for a in node.attribute):
                changing |= {*node.output}
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
        if op in ("Conv", "MaxPool", "AveragePool"):
            yield "stride"
            if any(_attribute(node, "pads") or ()):
                yield "pads"
        if op in ("BatchNormalization", "LayerNormalization", "InstanceNormalization"):
            yield "epsilon"
        if op in _COMPARISONS:
            yield "comparison"
        if op == "If":
            yield "branches exchanged"
        if op == "Gather" and node.input[0] in weights:
            yield "a row of a table"
        if op == "NonMaxSuppression" and len(node.input) > 3:
            yield "threshold"
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


_COMPARISONS = {"Greater": "GreaterOrEqual", "Less": "LessOrEqual", "GreaterOrEqual": "Greater", "LessOrEqual": "Less"}


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


def _stride(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    """Strides of 1 become 2, others 1; the broken model may not load."""
    del model, random
    before = _attribute(node, "strides") or [1] * len(_attribute(node, "kernel_shape") or [0, 0])
    _set(node, strides=[2 if s == 1 else 1 for s in before])
    return True


def _epsilon(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del model, random
    _set(node, epsilon=1000 * (_attribute(node, "epsilon") or 1e-5))
    return True


def _compare(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del model, random
    node.op_type = _COMPARISONS[node.op_type]
    return True


def _branches(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    del model, random
    first, second = (a for a in node.attribute if a.name in ("then_branch", "else_branch"))
    first.name, second.name = second.name, first.name
    return True


def _row(model: onnx.ModelProto, node: onnx.NodeProto, random: Random) -> bool:
    def change(array: Array) -> Array:
        wrong, row = array.copy(), int(random.integers(array.shape[0]))
        wrong[row] = -wrong[row]
        return wrong

    return _replace(model, node, 0, change)


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
    "stride": _stride,
    "epsilon": _epsilon,
    "comparison": _compare,
    "branches exchanged": _branches,
    "a row of a table": _row,
    "threshold": lambda model, node, random: _replace(model, node, 3, lambda a: np.asarray(a * 0.6, a.dtype)),
    "scale": lambda model, node, random: _replace(model, node, 1, lambda a: np.asarray(a * 1.5, a.dtype)),
    "zero point": lambda model, node, random: _replace(
        model, node, 2, lambda a: np.asarray(a.astype(np.int64) + np.where(a > 0, -9, 9), a.dtype)
    ),
}
