"""Random small QDQ models: each op between DequantizeLinear and QuantizeLinear, as exporters and quantizers write them.

The scale of each result fits its range times a random factor, so that some results saturate and others use few steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.harness.litert import Array

_TYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}


@dataclass
class Real:
    """A dequantized tensor: the name, and its elements for the inputs of the model."""

    name: str
    array: Array


@dataclass
class QuantizedGraph:
    """A model that is being built; `inputs`: its inputs. `wild`: scales are of any size, unrelated to the range."""

    seed: int
    dtype: str = "int8"
    wild: bool = False
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    declared: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.opset = 21 if self.dtype == "int16" else int(self.random.choice([14, 17, 21]))

    def name(self, kind: str) -> str:
        """A new name."""
        return f"{kind}_{len(self.nodes) + len(self.constants) + len(self.declared)}"

    def constant(self, array: Array) -> str:
        """The name of an initializer."""
        name = self.name("c")
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """The name of the only result of a new node."""
        name = self.name(op)
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def input(self, shape: Sequence[int]) -> Real:
        """A new input: integers, or floats that are quantized first."""
        array = self.random.normal(size=tuple(shape)).astype(np.float32) * float(2 ** self.random.uniform(-3, 3))
        name, stored = self.name("x"), bool(self.random.integers(2))
        self.declared.append((name, shape, stored))
        scale, zero = self.parameters(array)
        if stored:
            self.inputs[name] = quantized(array, scale, zero)
            return self.dequantize(name, self.inputs[name], scale, zero)
        self.inputs[name] = array
        return self.store(name, array)

    def parameters(self, array: Array) -> tuple[Array, Array]:
        """A scale and a zero point for the range of `array`, more or less; int16 is symmetric."""
        low, high = min(float(array.min(initial=0)), 0.0), max(float(array.max(initial=0)), 1e-3)
        scale = np.float32((high - low) / 255 * self.random.choice([0.5, 1, 1, 1, 1.7]))
        if self.wild:
            scale = np.float32(2.0 ** self.random.uniform(-24, 20))
        info = np.iinfo(self.dtype)
        zero = np.clip(round(info.min - low / float(scale)), info.min, info.max) if self.dtype != "int16" else 0
        if self.dtype == "int16":
            scale = np.float32(scale / 128)
        return scale, np.asarray(zero, self.dtype)

    def store(self, name: str, array: Array) -> Real:
        """`name` quantized and dequantized."""
        scale, zero = self.parameters(array)
        parameters = [self.constant(scale), self.constant(zero)]
        made = self.node("QuantizeLinear", [name, *parameters])
        return self.dequantize(made, quantized(array, scale, zero), scale, zero)

    def dequantize(self, name: str, stored: Array, scale: Array, zero: Array, axis: int | None = None) -> Real:
        """The real values of integers."""
        attributes = {} if axis is None else {"axis": axis}
        made = self.node("DequantizeLinear", [name, self.constant(scale), self.constant(zero)], **attributes)
        shape = [1] * stored.ndim
        if axis is not None:
            shape[axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        return Real(made, (stored.astype(np.float32) - zero.astype(np.float32)) * scale)

    def weight(self, shape: Sequence[int], axis: int, scale_of_input: float = 0.0) -> Real:
        """Constant weights, per tensor or per index of `axis`, symmetric."""
        array = self.random.normal(size=tuple(shape)).astype(np.float32)
        per_axis = bool(self.random.integers(2))
        axes = tuple(i for i in range(len(shape)) if i != axis) if per_axis else None
        scale = (np.abs(array).max(axes) / 127 + 1e-6).astype(np.float32)
        zero = np.zeros(scale.shape, np.int8)
        spread = scale.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if per_axis else scale
        stored = quantized(array, spread, np.zeros((), np.int8))
        name = self.constant(stored)
        return self.dequantize(name, stored, scale, zero, axis if per_axis else None)

    def finish(self, real: Real) -> None:
        """Make the integers of `real` an output."""
        (node,) = [n for n in self.nodes if n.output[0] == real.name]
        dtype = _TYPES[self.dtype] if node.op_type == "DequantizeLinear" else TensorProto.FLOAT
        name = node.input[0] if node.op_type == "DequantizeLinear" else real.name
        if name not in [o.name for o in self.outputs]:
            self.outputs.append(helper.make_tensor_value_info(name, dtype, list(real.array.shape)))

    def model(self) -> bytes:
        """The model in a file's bytes."""
        inputs = [
            helper.make_tensor_value_info(name, _TYPES[self.dtype] if stored else TensorProto.FLOAT, shape)
            for name, shape, stored in self.declared
        ]
        graph = helper.make_graph(self.nodes, "g", inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", self.opset)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=10)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def quantized(array: Array, scale: Array, zero: Array) -> Array:
    """The integers of real values, as ONNX defines QuantizeLinear."""
    info = np.iinfo(zero.dtype)
    return np.clip(np.rint(array / scale) + zero.astype(np.float64), info.min, info.max).astype(zero.dtype)


Step = Callable[[QuantizedGraph, Real], Real]


def _made(g: QuantizedGraph, op: str, operands: Sequence[Real | str], **attributes: Any) -> Real:
    """A node and its quantized result."""
    names = [o.name if isinstance(o, Real) else o for o in operands]
    made = g.node(op, names, **attributes)
    return g.store(made, _computed(g.nodes[-1], operands, g))


def _computed(node: Any, operands: Sequence[Real | str], g: QuantizedGraph) -> Array:
    """The result of a float node by ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    known = {c.name: numpy_helper.to_array(c) for c in g.constants}
    fed = {o.name: o.array for o in operands if isinstance(o, Real)}
    fed |= {o: known[o] for o in operands if isinstance(o, str) and o}
    inputs = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in fed.items()
    ]
    output = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=10)
    return np.asarray(ReferenceEvaluator(model).run(None, fed)[0])


def _bias(g: QuantizedGraph, size: int) -> str:
    """A float bias, or none."""
    return g.constant(g.random.normal(size=size).astype(np.float32)) if g.random.integers(2) else ""


def convolution(g: QuantizedGraph, x: Real) -> Real:
    """Conv: plain, grouped or depthwise; strides, pads, dilations."""
    channels = x.array.shape[1]
    group = int(g.random.choice([n for n in (1, 1, 2, channels) if channels % n == 0]))
    out, size = int(group * g.random.integers(1, 4)), int(g.random.integers(1, 4))
    size = min(size, *x.array.shape[2:])
    w = g.weight([out, channels // group, size, size], 0)
    pad = [int(n) for n in g.random.integers(0, size, 4)]
    stride = [int(g.random.integers(1, 3))] * 2
    bias = _bias(g, out)
    return _made(g, "Conv", [x, w, *([bias] if bias else [])], group=group, pads=pad, strides=stride)


def matmul(g: QuantizedGraph, x: Real) -> Real:
    """MatMul with constant weights."""
    w = g.weight([x.array.shape[-1], int(g.random.integers(1, 9))], 1)
    return _made(g, "MatMul", [x, w])


def product(g: QuantizedGraph, x: Real) -> Real:
    """MatMul of two activations."""
    shape = list(x.array.shape)
    y = g.input([*shape[:-2], shape[-1], int(g.random.integers(1, 6))])
    return _made(g, "MatMul", [x, y])


def gemm(g: QuantizedGraph, x: Real) -> Real:
    """Flatten and Gemm, the weights transposed or not."""
    flat = g.node("Flatten", [x.name], axis=1)
    array = x.array.reshape(x.array.shape[0], -1)
    real = g.store(flat, array)
    out, transposed = int(g.random.integers(1, 9)), int(g.random.integers(2))
    shape = [out, array.shape[1]] if transposed else [array.shape[1], out]
    w, bias = g.weight(shape, 0 if transposed else 1), _bias(g, out)
    return _made(g, "Gemm", [real, w, *([bias] if bias else [])], transB=transposed)


def binary(op: str) -> Step:
    """An op on two activations, one of another shape, or the same."""

    def step(g: QuantizedGraph, x: Real) -> Real:
        choice = int(g.random.integers(4))
        if choice == 0:
            return _made(g, op, [x, x])
        if choice == 1:
            return _made(g, op, [x, g.weight(x.array.shape[-1:], 0)])
        shape = x.array.shape if choice == 2 else [1 if g.random.integers(2) else d for d in x.array.shape]
        return _made(g, op, [x, g.input(shape)])

    return step


def concat(g: QuantizedGraph, x: Real) -> Real:
    """Concat of two or three."""
    axis = int(g.random.integers(-x.array.ndim, x.array.ndim))
    others = [g.input(x.array.shape) if g.random.integers(2) else x for _ in range(int(g.random.integers(1, 3)))]
    return _made(g, "Concat", [x, *others], axis=axis)


def unary(op: str, **attributes: Any) -> Step:
    """An op of one operand."""

    def step(g: QuantizedGraph, x: Real) -> Real:
        return _made(g, op, [x], **attributes)

    return step


def pool(op: str) -> Step:
    """A pool with its own scale, padded or not."""

    def step(g: QuantizedGraph, x: Real) -> Real:
        size = min(2, *x.array.shape[2:])
        pad = [int(n) for n in g.random.integers(0, size, 4)]
        stride = [int(n) for n in g.random.integers(1, 3, 2)]
        more = {"count_include_pad": int(g.random.integers(2))} if op == "AveragePool" else {}
        return _made(g, op, [x], kernel_shape=[size, size], pads=pad, strides=stride, **more)

    return step


def clip(g: QuantizedGraph, x: Real) -> Real:
    """Clip to bounds that may be on the grid, or not."""
    low, high = sorted(float(v) for v in g.random.choice([-1.0, 0.0, 0.3, 2.0, 6.0], 2, replace=False))
    return _made(g, "Clip", [x, g.constant(np.float32(low)), g.constant(np.float32(high))])


def reshape(g: QuantizedGraph, x: Real) -> Real:
    """Reshape to two axes; quantized again, or with the same parameters."""
    return _made(g, "Reshape", [x, g.constant(np.asarray([x.array.shape[0], -1], np.int64))])


def transpose(g: QuantizedGraph, x: Real) -> Real:
    """Transpose by a random permutation."""
    return _made(g, "Transpose", [x], perm=[int(i) for i in g.random.permutation(x.array.ndim)])


def pad(g: QuantizedGraph, x: Real) -> Real:
    """Pad with 0 or another value."""
    pads = g.random.integers(0, 3, 2 * x.array.ndim).astype(np.int64)
    value = [g.constant(np.float32(0.7))] if g.random.integers(2) else []
    return _made(g, "Pad", [x, g.constant(pads), *value])


def part(g: QuantizedGraph, x: Real) -> Real:
    """Slice the last axis."""
    bounds = [g.constant(np.asarray([n], np.int64)) for n in (0, max(1, x.array.shape[-1] - 1), -1)]
    return _made(g, "Slice", [x, *bounds])


def gather(g: QuantizedGraph, x: Real) -> Real:
    """Gather along the last axis."""
    places = g.random.integers(0, x.array.shape[-1], 3).astype(np.int64)
    return _made(g, "Gather", [x, g.constant(places)], axis=-1)


def mean(g: QuantizedGraph, x: Real) -> Real:
    """ReduceMean over the last axes."""
    axes = sorted({int(n) for n in g.random.integers(1, x.array.ndim, 2)}) if x.array.ndim > 1 else [0]
    keepdims = int(g.random.integers(2))
    if g.opset < 18:
        return _made(g, "ReduceMean", [x], axes=axes, keepdims=keepdims)
    return _made(g, "ReduceMean", [x, g.constant(np.asarray(axes, np.int64))], keepdims=keepdims)


STEPS: dict[str, tuple[int, Step]] = {
    "conv": (4, convolution), "matmul": (0, matmul), "product": (0, product), "gemm": (4, gemm),
    "concat": (0, concat), "clip": (0, clip), "reshape": (0, reshape), "transpose": (0, transpose), "pad": (0, pad),
    "slice": (0, part), "gather": (0, gather), "maxpool": (4, pool("MaxPool")), "avgpool": (4, pool("AveragePool")),
    "global": (4, unary("GlobalAveragePool")),
    **{op.lower(): (0, binary(op)) for op in ("Add", "Sub", "Mul", "Max", "Min")},
    **{op.lower(): (0, unary(op)) for op in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Abs", "Neg", "Exp", "Erf")},
    "leaky": (0, unary("LeakyRelu", alpha=0.1)), "softmax": (0, unary("Softmax", axis=-1)),
    "squeeze": (0, unary("Flatten", axis=2)),
}  # fmt: skip
"""Name -> (the rank that the operand must have, 0 for any; the step)."""


def random_graph(seed: int, steps: int, names: Sequence[str] = tuple(STEPS), wild: bool = False) -> QuantizedGraph:
    """A model of `steps` random ops; some intermediate tensors are outputs too."""
    random = np.random.default_rng(seed)
    dtype = str(random.choice(["int8", "int8", "int8", "uint8", "uint8", "int16"]))
    g = QuantizedGraph(seed, dtype, wild)
    x = g.input([int(n) for n in random.integers(1, 7, 4)])
    for _ in range(steps):
        fitting = [n for n in names if STEPS[n][0] in (0, x.array.ndim) and x.array.ndim > 1]
        if not fitting:
            break
        x = STEPS[str(random.choice(fitting))][1](g, x)
        if random.integers(4) == 0:
            g.finish(x)
    g.finish(x)
    return g
