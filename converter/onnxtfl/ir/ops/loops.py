"""Loops: While, Loop and Scan, whose bodies are graphs that take captured values as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxtfl.ir.attributes import Axes, Body, Flag, Integer, Several
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Dim, fresh_symbol, known_of, known_sizes, positive_part, size_or
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import BOOLS, INDICES, Attributes, Op, Operand, attributes_of
from onnxtfl.ir.ops.arithmetic import Add
from onnxtfl.ir.region_types import joined_type, region_of, type_of
from onnxtfl.ir.shapes import known_dims, normalize_axis, static_ints
from onnxtfl.ir.types import TensorType, Type

VALUES = Operand("values", variadic=True)


class While(Op):
    """`values` after applying `body` while `cond` returns true.

    Both are graphs that take all of the values; `cond` returns one bool of one element, `body` as many outputs as it
    has inputs. Inputs of loop-carried values whose size changes have an unknown size.
    Source: neutral-ops 3.140; TFLite WHILE.
    """

    core = True
    operands = (Operand("values", variadic=True),)
    results = (Operand("outputs", variadic=True),)
    attributes = {"cond": Body(), "body": Body()}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        cond, body = (region_of(node, name, node.operands) for name in cls.defaults)
        if len(cond.outputs) != 1 or len(body.outputs) != len(body.inputs):
            raise ValueError("the condition has one output, the body as many outputs as inputs")
        pairs = zip(node.operands, body.outputs, strict=True)
        return [joined_type(type_of(a), b.type) for a, b in pairs]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        values = [np.asarray(v) for v in operands]
        while bool(run(attributes["cond"], values)[0].reshape(-1)[0]):
            values = run(attributes["body"], values)
        return tuple(values)


class Loop(Op):
    """`body` applied while a condition holds, at most `count` times (absent: without limit).

    Inputs of `body`: the iteration number (int64), the condition, `carried` values, and captured values (the rest of
    `values`); outputs: the condition for another iteration, the next carried values, and one element of each scan
    output. `go_on` (absent: true): the initial condition. Results: the final carried values, and the scan outputs,
    stacked along a new first axis.

    Not core: Scan and While as ONNX has them. Source: ONNX Loop-11 (added).
    """

    operands = (Operand("count", INDICES, optional=True), Operand("go_on", BOOLS, optional=True), VALUES)
    results = (Operand("outputs", variadic=True),)
    attributes = {"body": Body(), "carried": Integer()}

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        body, count, values = node.attr("body"), int(node.attr("carried")), node.operands[2:]
        if len(body.inputs) != len(values) + 2 or len(body.outputs) <= count:
            raise ValueError("the body has another number of inputs or outputs")
        finals = [
            joined_type(type_of(v), o.type) for v, o in zip(values[:count], body.outputs[1 : count + 1], strict=True)
        ]
        elements = [o.tensor_type for o in body.outputs[count + 1 :]]
        return [*finals, *(t.with_shape(None if t.shape is None else (fresh_symbol(), *t.shape)) for t in elements)]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        limit, go_on, *values = operands
        body, count = attributes["body"], attributes["carried"]
        carried, captures = [np.asarray(v) for v in values[:count]], [np.asarray(v) for v in values[count:]]
        most = None if limit is None else int(limit.reshape(-1)[0])
        condition = np.asarray(True) if go_on is None else go_on
        elements: list[list[Array]] = []
        while bool(condition.reshape(-1)[0]) and (most is None or len(elements) < most):
            outputs = run(body, [np.asarray(len(elements), np.int64), condition, *carried, *captures])
            condition, carried = outputs[0], outputs[1 : count + 1]
            elements.append(outputs[count + 1 :])
        return (
            *carried,
            *(joined_elements(v, [e[i] for e in elements]) for i, v in enumerate(body.outputs[count + 1 :])),
        )


def scan_attributes(carried: int, axes: Sequence[int] = (), result_axes: Sequence[int] = ()) -> dict[str, Any]:
    """The attributes of a Scan with slices along `axes` and scan outputs along `result_axes`, none of them reversed."""
    forward, collected = (False,) * len(axes), (False,) * len(result_axes)
    return {
        "carried": carried,
        "axes": tuple(axes),
        "reversed": forward,
        "result_axes": tuple(result_axes),
        "result_reversed": collected,
    }


class Scan(Op):
    """`body` applied in each iteration to the carried values, one slice of each scanned value, and captured values.

    `values`: `carried` values, then as many scanned ones as `axes` has entries, then captures. There are `length`
    iterations (absent: the common size of the scanned axes); iteration i reads index i of a scanned value along its
    axis (a `reversed` one: from the end), without that axis. `body` returns the next carried values, then one element
    of each scan output. Results: the final carried values, and the scan outputs, stacked along `result_axes` in order
    of iterations (`result_reversed`: backwards). With zero iterations: the carried values, and empty results. Not core,
    since kernels exist only in ONNX; decomposed by rules. Source: ONNX Scan-9 (added; `length` as the trip count of its
    Loop).
    """

    operands = (Operand("length", INDICES, optional=True), Operand("values", variadic=True))
    results = (Operand("outputs", variadic=True),)
    attributes = {
        "body": Body(),
        "carried": Integer(),
        "axes": Axes(()),
        "reversed": Several(Flag(), ()),
        "result_axes": Axes(()),
        "result_reversed": Several(Flag(), ()),
    }

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        parts = ScanParts.of(node)
        given = [*(v.type for v in parts.carried), *parts.slice_types(), *(v.type for v in parts.captures)]
        body = region_of(node, "body", [Value(t) for t in given])
        if len(body.outputs) != parts.count + len(parts.result_axes):
            raise ValueError(f"the body has {len(body.outputs)} outputs")
        finals = [joined_type(a.type, b.type) for a, b in zip(parts.carried, body.outputs, strict=False)]
        return [*finals, *parts.collected_types(body.outputs[parts.count :])]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> tuple[Array, ...]:
        length, *values = operands
        count, axes = attributes["carried"], attributes["axes"]
        arrays = [np.asarray(v) for v in values]
        carried, scanned, captures = arrays[:count], arrays[count : count + len(axes)], arrays[count + len(axes) :]
        rounds = scanned[0].shape[axes[0]] if length is None else int(np.asarray(length).reshape(-1)[0])
        elements: list[list[Array]] = []
        for i in range(rounds):
            indices = [-1 - i if back else i for back in attributes["reversed"]]
            picked = zip(scanned, indices, axes, strict=True)
            slices = [np.asarray(np.take(x, j, axis), x.dtype) for x, j, axis in picked]
            outputs = run(attributes["body"], [*carried, *slices, *captures])
            carried = outputs[:count]
            elements.append(outputs[count:])
        return (*carried, *_collected(attributes, elements))


def _collected(attributes: Attributes, elements: Sequence[Sequence[Array]]) -> list[Array]:
    """Stack the elements of all iterations for each scan output."""
    results = []
    outputs = attributes["body"].outputs[attributes["carried"] :]
    for i, (axis, back) in enumerate(zip(attributes["result_axes"], attributes["result_reversed"], strict=True)):
        rounds = [element[i] for element in elements]
        results.append(joined_elements(outputs[i], rounds[::-1] if back else rounds, axis))
    return results


def joined_elements(output: Value, elements: Sequence[Array], axis: int = 0) -> Array:
    """Stack `elements`, values of `output` of a body, along a new axis; without elements, dynamic sizes are 0."""
    if elements:
        return np.stack(elements, axis)
    shape = [size_or(d, 0) for d in output.shape]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    return np.zeros(shape, output.dtype.numpy)


class ScanParts:
    """The operands and attributes of a Scan by role; `count`: the number of carried values."""

    def __init__(self, length: Value | None, values: Sequence[Value], attributes: Attributes) -> None:
        self.attributes = dict(attributes)
        self.length, self.count = length, int(attributes["carried"])
        self.axes, self.reversed = tuple(attributes["axes"]), tuple(attributes["reversed"])
        self.result_axes, self.result_reversed = tuple(attributes["result_axes"]), tuple(attributes["result_reversed"])
        self.body: Graph = attributes["body"]
        end = self.count + len(self.axes)
        self.values = tuple(values)
        self.carried, self.scanned, self.captures = values[: self.count], values[self.count : end], values[end:]
        if len(self.reversed) != len(self.axes) or len(self.result_reversed) != len(self.result_axes):
            raise ValueError("an axis without a direction")
        if len(self.scanned) != len(self.axes) or len(self.carried) != self.count:
            raise ValueError(f"{len(values)} values for {self.count} carried and {len(self.axes)} scanned ones")
        if length is None and not self.axes:
            raise ValueError("neither a length nor a scanned value")
        if length is None and len(set(known_sizes(self.sizes))) > 1:
            raise ValueError(f"scanned axes of sizes {self.sizes}")

    @classmethod
    def of(cls, node: Node) -> ScanParts:
        """The parts of `node`."""
        return cls(node.operands[0], [v for v in node.operands[1:] if v is not None], attributes_of(node))

    @property
    def sizes(self) -> list[Dim]:
        """The sizes of the scanned axes, where the rank is known."""
        pairs = zip(self.scanned, self.axes, strict=True)
        return [v.shape[normalize_axis(a, v.rank)] for v, a in pairs if v.tensor_type.shape is not None]

    @property
    def rounds(self) -> Dim:
        """The number of iterations; a fresh symbol if it is dynamic."""
        if self.length is None:
            return known_of(*self.sizes) if self.sizes else fresh_symbol()
        known = known_dims(self.length)
        if known is None:
            return fresh_symbol()
        return positive_part(known[0])

    def counter(self, index: int) -> tuple[int, int] | None:
        """Return start and step of carried value `index` if it is a counter, else None."""
        start, taken, returned = static_ints(self.carried[index]), self.body.inputs[index], self.body.outputs[index]
        node = returned.producer
        if start is None or len(start) != 1 or not taken.is_single or node is None or node.op is not Add:
            return None
        others = [v for v in node.operands if v is not taken]
        step = static_ints(others[0]) if len(others) == 1 else None
        return (start[0], step[0]) if step is not None and len(step) == 1 else None

    def slice_types(self) -> list[TensorType]:
        """Return the types of one slice of each scanned value."""
        found = []
        for value, axis in zip(self.scanned, self.axes, strict=True):
            shape = value.tensor_type.shape
            place = None if shape is None else normalize_axis(axis, len(shape))
            sliced = None if shape is None else tuple(d for i, d in enumerate(shape) if i != place)
            found.append(value.tensor_type.with_shape(sliced))
        return found

    def collected_types(self, elements: Sequence[Value]) -> list[TensorType]:
        """Return the types of the scan outputs."""
        rounds, found = self.rounds, []
        for value, axis in zip(elements, self.result_axes, strict=True):
            shape = value.tensor_type.shape
            if shape is not None:
                place = normalize_axis(axis, len(shape) + 1)
                shape = (*shape[:place], rounds, *shape[place:])
            found.append(value.tensor_type.with_shape(shape))
        return found
