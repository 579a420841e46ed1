"""Small models of the kinds that run on microcontrollers, as ONNX: float, and quantized with QDQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.unit.tiny_models import onnx_model

Array = np.ndarray[Any, Any]
F = TensorProto.FLOAT


class _Network:
    """Layers one after the other; `quantized`: each value between QuantizeLinear and DequantizeLinear."""

    def __init__(self, shape: Sequence[int], quantized: bool = False) -> None:
        self.shape, self.quantized = list(shape), quantized
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.rng = np.random.default_rng(7)
        self.value = "x"
        self.round(4.0)

    def model(self, outputs: Sequence[int]) -> onnx.ModelProto:
        """The model, whose output has the shape `outputs`."""
        inputs = [("x", F, self.shape)]
        return onnx_model(self.nodes, inputs, [(self.value, F, outputs)], self.constants, opset=17)

    def add(self, op: str, *operands: str, **attributes: Any) -> str:
        """Add an op on the last value."""
        result = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.value, *operands], [result], name=result, **attributes))
        self.value = result
        return result

    def weights(self, *shape: int) -> str:
        """A constant; where quantized, stored as int8 with a scale for each index of the first axis."""
        name = f"w{len(self.constants)}"
        fan = max(1.0, float(np.prod(shape[1:])))
        array = (self.rng.standard_normal(shape) * (2 / fan) ** 0.5).astype(np.float32)
        if not self.quantized or len(shape) == 1:
            self.constants[name] = array
            return name
        scale = np.abs(array).reshape(shape[0], -1).max(1).astype(np.float32) / np.float32(127)
        by_row = scale.reshape(-1, *[1] * (len(shape) - 1))
        self.constants |= {name: np.round(array / by_row).astype(np.int8), name + "s": scale}
        self.constants[name + "z"] = np.zeros(shape[0], np.int8)
        parts = [name, name + "s", name + "z"]
        self.nodes.append(helper.make_node("DequantizeLinear", parts, [name + "f"], axis=0))
        return name + "f"

    def round(self, largest: float) -> None:
        """Quantize and dequantize the last value, whose elements are at most about `largest`."""
        if self.quantized:
            name = f"q{len(self.nodes)}"
            self.constants |= {name + "s": np.float32(largest / 127), name + "z": np.int8(0)}
            self.add("QuantizeLinear", name + "s", name + "z")
            self.add("DequantizeLinear", name + "s", name + "z")

    def conv(self, out: int, inputs: int, size: int = 3, stride: int = 1, group: int = 1) -> None:
        """A convolution with the same padding on all sides, and Relu."""
        w = self.weights(out, inputs // group, size, size)
        b = self.weights(out)
        pads = [size // 2] * 4
        self.add("Conv", w, b, kernel_shape=[size] * 2, strides=[stride] * 2, pads=pads, group=group)
        self.add("Relu")
        self.round(4.0)

    def dense(self, out: int, inputs: int) -> None:
        """A dense layer."""
        w, b = self.weights(out, inputs), self.weights(out)
        self.add("Gemm", w, b, transB=1)
        self.round(4.0)


def cnn(*, quantized: bool = False) -> onnx.ModelProto:
    """A person detector in small: depthwise separable convolutions, a global pool, a dense layer, Softmax."""
    net = _Network((1, 1, 24, 24), quantized)
    net.conv(8, 1, stride=2)
    for channels, stride in ((8, 1), (16, 2)):
        net.conv(8, 8, stride=stride, group=8)
        net.conv(channels, 8, size=1)
    net.add("GlobalAveragePool")
    net.round(2.0)
    net.add("Flatten")
    net.dense(2, 16)
    net.add("Softmax", axis=1)
    return net.model((1, 2))


def keyword_spotter(*, quantized: bool = False) -> onnx.ModelProto:
    """Spectrograms of 49 frames and 10 bands to 4 words: a convolution, a depthwise one, pools, a dense layer."""
    net = _Network((1, 1, 49, 10), quantized)
    net.conv(8, 1, size=5, stride=2)
    net.conv(8, 8, group=8)
    net.conv(8, 8, size=1)
    net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    net.add("Flatten")
    net.dense(4, 8 * 12 * 2)
    net.add("Softmax", axis=1)
    return net.model((1, 4))


def recurrent(op: str, units: int = 6, steps: int = 5, inputs: int = 4, *, quantized: bool = False) -> onnx.ModelProto:
    """An LSTM or GRU layer on [steps, 1, inputs], and a dense layer on its last state.

    `quantized`: as onnxruntime.quantization writes it: the input, the state and all constants in int8.
    """
    gates = {"LSTM": 4, "GRU": 3}[op]
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    constants = {
        "w": draw(1, gates * units, inputs),
        "r": draw(1, gates * units, units),
        "b": draw(1, 2 * gates * units),
        "v": draw(units, 3),
        "zero": np.array([0], np.int64),
    }
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    nodes = [
        helper.make_node(op, ["x", "w", "r", "b"], ["", "h"], name="layer", hidden_size=units, **more),
        helper.make_node("Squeeze", ["h", "zero"], ["last"]),
        helper.make_node("MatMul", ["last", "v"], ["y"]),
    ]
    if quantized:
        nodes, constants = _in_int8(nodes, constants)
    return onnx_model(nodes, [("x", F, (steps, 1, inputs))], [("y", F, (1, 3))], constants)


def _in_int8(nodes: list[onnx.NodeProto], constants: dict[str, Array]) -> tuple[list[onnx.NodeProto], dict[str, Array]]:
    """The nodes between Q and DQ ops: of "x", of "h" and of all float constants, with a scale each."""
    made: list[onnx.NodeProto] = []
    stored = {name: array for name, array in constants.items() if array.dtype != np.float32}
    for name in (*(constants.keys() - stored.keys()), "x", "h"):
        scale = np.float32(4 / 127) if name in ("x", "h") else np.abs(constants[name]).max() / np.float32(127)
        stored |= {f"{name}_s": scale, f"{name}_z": np.int8(0)}
        source, parameters = f"{name}_q", [f"{name}_s", f"{name}_z"]
        if name in constants:
            stored[source] = np.round(constants[name] / scale).astype(np.int8)
        else:
            made.append(helper.make_node("QuantizeLinear", [name, *parameters], [source]))
        made.append(helper.make_node("DequantizeLinear", [source, *parameters], [f"{name}_r"]))
    for node in nodes:
        node.input[:] = [name if name in stored or name == "last" else f"{name}_r" for name in node.input]
    after = [node for node in made if node.output[0].startswith("h_")]
    return [*(node for node in made if node not in after), nodes[0], *after, *nodes[1:]], stored
