"""Train a small convolutional network on scikit-learn's digits, in NumPy, and export it to ONNX.

    python examples/train_digits.py        (needs scikit-learn; takes about twenty seconds)

Writes digits.onnx (Conv, BatchNormalization, Relu, MaxPool, Gemm, Softmax) and digits_test.npz (the test images and
labels, so that the demo does not need scikit-learn) to the directory of this file. Equal seeds give equal files.

Every layer has `forward` and `backward`; `backward` takes the gradient of the loss with respect to the layer's result,
stores the gradients of the layer's parameters in `gradients`, and returns the gradient of its input.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
random = np.random.default_rng(7)


class Layer:
    """A layer of the network with its parameters and their gradients."""

    def __init__(self, **parameters: Array) -> None:
        self.parameters = {name: value.astype(np.float32) for name, value in parameters.items()}
        self.gradients: dict[str, Array] = {}

    def forward(self, x: Array, training: bool) -> Array:
        raise NotImplementedError

    def backward(self, gradient: Array) -> Array:
        raise NotImplementedError

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        """The ONNX op type, the tensors after the first input, and the attributes."""
        raise NotImplementedError


class Conv(Layer):
    """3x3 convolution with padding 1: [n, in, h, w] -> [n, out, h, w]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(weight=random.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs)))

    def forward(self, x: Array, training: bool) -> Array:
        self.windows = _windows(x)
        return np.einsum("nchwij,ocij->nohw", self.windows, self.parameters["weight"], optimize=True)

    def backward(self, gradient: Array) -> Array:
        self.gradients["weight"] = np.einsum("nchwij,nohw->ocij", self.windows, gradient, optimize=True)
        flipped = self.parameters["weight"][:, :, ::-1, ::-1]
        return np.einsum("nohwij,ocij->nchw", _windows(gradient), flipped, optimize=True)

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        return "Conv", self.parameters, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


class BatchNorm(Layer):
    """Normalize each channel: with batch statistics in training, with the running mean and variance in inference."""

    EPSILON = 1e-5

    def __init__(self, channels: int) -> None:
        super().__init__(scale=np.ones(channels), bias=np.zeros(channels))
        self.mean, self.variance = np.zeros(channels, np.float32), np.ones(channels, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        if training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
            self.mean += 0.1 * (mean - self.mean)
            self.variance += 0.1 * (variance - self.variance)
        else:
            mean, variance = self.mean, self.variance
        self.deviation = _channelwise(np.sqrt(variance + self.EPSILON))
        self.normal = (x - _channelwise(mean)) / self.deviation
        return self.normal * _channelwise(self.parameters["scale"]) + _channelwise(self.parameters["bias"])

    def backward(self, gradient: Array) -> Array:
        axes = (0, 2, 3)
        self.gradients = {"scale": (gradient * self.normal).sum(axes), "bias": gradient.sum(axes)}
        gradient = gradient * _channelwise(self.parameters["scale"])
        centered = gradient - gradient.mean(axes, keepdims=True)
        return (centered - self.normal * (gradient * self.normal).mean(axes, keepdims=True)) / self.deviation

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        tensors = {**self.parameters, "mean": self.mean, "variance": self.variance}
        return "BatchNormalization", tensors, {"epsilon": self.EPSILON}


class Relu(Layer):
    """max(x, 0)."""

    def forward(self, x: Array, training: bool) -> Array:
        self.positive = x > 0
        return x * self.positive

    def backward(self, gradient: Array) -> Array:
        return gradient * self.positive

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        return "Relu", {}, {}


class MaxPool(Layer):
    """2x2 windows, stride 2: [n, c, 2h, 2w] -> [n, c, h, w]."""

    def forward(self, x: Array, training: bool) -> Array:
        n, c, h, w = x.shape
        self.blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        self.largest = self.blocks.max((3, 5), keepdims=True)
        return self.largest[:, :, :, 0, :, 0]

    def backward(self, gradient: Array) -> Array:
        chosen = self.blocks == self.largest
        shared = gradient[:, :, :, None, :, None] * chosen / chosen.sum((3, 5), keepdims=True)
        n, c, h, _, w, _ = shared.shape
        return shared.reshape(n, c, 2 * h, 2 * w)

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        return "MaxPool", {}, {"kernel_shape": [2, 2], "strides": [2, 2]}


class Flatten(Layer):
    """[n, ...] -> [n, features]."""

    def forward(self, x: Array, training: bool) -> Array:
        self.shape = x.shape
        return x.reshape(len(x), -1)

    def backward(self, gradient: Array) -> Array:
        return gradient.reshape(self.shape)

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        return "Flatten", {}, {}


class Dense(Layer):
    """x W^T + b."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(weight=random.standard_normal((outputs, inputs)) / np.sqrt(inputs), bias=np.zeros(outputs))

    def forward(self, x: Array, training: bool) -> Array:
        self.x = x
        return x @ self.parameters["weight"].T + self.parameters["bias"]

    def backward(self, gradient: Array) -> Array:
        self.gradients = {"weight": gradient.T @ self.x, "bias": gradient.sum(0)}
        return gradient @ self.parameters["weight"]

    def export(self) -> tuple[str, dict[str, Array], dict[str, Any]]:
        return "Gemm", self.parameters, {"transB": 1}


class Adam:
    """Adam over all parameters of the layers."""

    def __init__(self, layers: list[Layer], rate: float) -> None:
        self.layers, self.rate, self.step = layers, rate, 0
        self.moments: dict[tuple[int, str], tuple[Array, Array]] = {}

    def update(self) -> None:
        self.step += 1
        rate = self.rate * np.sqrt(1 - 0.999**self.step) / (1 - 0.9**self.step)
        for i, layer in enumerate(self.layers):
            for name, gradient in layer.gradients.items():
                first, second = self.moments.get((i, name), (np.zeros_like(gradient), np.zeros_like(gradient)))
                first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
                self.moments[i, name] = first, second
                layer.parameters[name] -= (rate * first / (np.sqrt(second) + 1e-8)).astype(np.float32)


def _windows(x: Array) -> Array:
    """All 3x3 windows of x padded by 1: [n, c, h, w] -> [n, c, h, w, 3, 3]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return sliding_window_view(padded, (3, 3), axis=(2, 3))


def _channelwise(values: Array) -> Array:
    return values[None, :, None, None]


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def predict(layers: list[Layer], x: Array, training: bool = False) -> Array:
    """Probabilities of the ten digits: [n, 1, 8, 8] -> [n, 10]."""
    for layer in layers:
        x = layer.forward(x, training)
    return _softmax(x)


def train(layers: list[Layer], images: Array, labels: Array, epochs: int = 30, batch: int = 64) -> None:
    """Minimize the cross entropy."""
    optimizer = Adam(layers, rate=2e-3)
    for epoch in range(epochs):
        order = random.permutation(len(images))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            gradient = (predict(layers, images[chosen], training=True) - np.eye(10)[labels[chosen]]) / len(chosen)
            for layer in reversed(layers):
                gradient = layer.backward(gradient.astype(np.float32))
            optimizer.update()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: training accuracy {accuracy(predict(layers, images), labels):.2%}")


def accuracy(probabilities: Array, labels: Array) -> float:
    """The share of images whose most probable digit is the label."""
    return float((probabilities.argmax(1) == labels).mean())


def export(layers: list[Layer], path: Path) -> None:
    """Write the network as ONNX, with a dynamic batch size."""
    nodes, tensors, x = [], [], "image"
    for i, layer in enumerate(layers):
        op, weights, attributes = layer.export()
        names = [f"{op.lower()}{i}.{name}" for name in weights]
        tensors += [numpy_helper.from_array(w, name) for name, w in zip(names, weights.values(), strict=True)]
        nodes.append(helper.make_node(op, [x, *names], [f"{op.lower()}{i}"], f"{op.lower()}{i}", **attributes))
        x = nodes[-1].output[0]
    nodes.append(helper.make_node("Softmax", [x], ["probability"], "softmax", axis=1))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])
    probability = helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [image], [probability], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


def main() -> None:
    """Train and test the network, then write the files."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    order = random.permutation(len(images))
    test, rest = order[:450], order[450:]
    layers: list[Layer] = [
        Conv(1, 32), BatchNorm(32), Relu(), MaxPool(),
        Conv(32, 64), BatchNorm(64), Relu(), MaxPool(),
        Flatten(), Dense(256, 10),
    ]  # fmt: skip
    train(layers, images[rest], digits.target[rest])
    print(f"test accuracy {accuracy(predict(layers, images[test]), digits.target[test]):.2%}")
    export(layers, HERE / "digits.onnx")
    pixels = digits.images[test].astype(np.uint8)
    np.savez_compressed(HERE / "digits_test.npz", pixels=pixels, labels=digits.target[test].astype(np.uint8))


if __name__ == "__main__":
    main()
