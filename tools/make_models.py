"""Write large ONNX models with random weights, using onnx and NumPy only.

    python tools/make_models.py resnet50 OUT.onnx
    python tools/make_models.py bert_base_plus OUT.onnx
    python tools/make_models.py chain OUT.onnx --nodes 10000

The graphs are those of PyTorch's exporter for these networks (batch norm folded into the convolutions); weights are
streamed to the file, so that memory use is small. Equal arguments give equal bytes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

_CHUNK = 1 << 21


class Network:
    """The nodes and weights of a model; the elements of weights are generated while `write` runs."""

    def __init__(self, name: str, opset: int = 17) -> None:
        self.name = name
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self._random: list[tuple[str, tuple[int, ...], float]] = []
        self._constants: dict[str, np.ndarray[Any, Any]] = {}

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> str:
        """Add a model input."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, source: str, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> None:
        """Add a model output: the value ``source``, which is renamed to ``name``."""
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, found in enumerate(names):
                    if found == source:
                        names[i] = name
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result, and return the result's name."""
        result = f"/{op}_{len(self.nodes)}_output_0"
        self.nodes.append(helper.make_node(op, inputs, [result], f"/{op}_{len(self.nodes)}", **attributes))
        return result

    def weight(self, name: str, shape: Sequence[int], scale: float) -> str:
        """Add a float32 weight with normally distributed elements, and return its name."""
        self._random.append((name, tuple(shape), scale))
        return name

    def constant(self, value: Any, dtype: type = np.float32) -> str:
        """Add a small constant, and return its name; equal constants are stored once."""
        array: np.ndarray[Any, Any] = np.asarray(value, dtype)
        name = f"const_{array.dtype.name}_" + "_".join(str(v) for v in [*array.shape, "of", *array.ravel()])
        self._constants[name] = array
        return name

    def _write_external(self, path: Path) -> None:
        """Write the .onnx file, and the random weights to a .data file beside it."""
        tensors, place, data = [], 0, path.with_suffix(".data")
        for name, shape, _ in self._random:
            length = 4 * math.prod(shape)
            entries = {"location": data.name, "offset": place, "length": length}
            tensor = TensorProto(dims=shape, data_type=TensorProto.FLOAT, name=name)
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.extend(StringStringEntryProto(key=k, value=str(v)) for k, v in entries.items())
            tensors.append(tensor)
            place += length
        tensors += [helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape, a.ravel())
                    for n, a in self._constants.items()]  # fmt: skip
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, tensors)
        opset = OperatorSetIdProto(domain="", version=self.opset)
        path.write_bytes(helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())
        with data.open("wb") as file:
            for seed, (_, shape, scale) in enumerate(self._random):
                _write_random(file, math.prod(shape), scale, seed)

    def write(self, path: Path) -> None:
        """Write the .onnx file, weight by weight; weights of more than 2 GB to a .data file beside it."""
        if sum(4 * math.prod(shape) for _, shape, _ in self._random) >= 1 << 31:
            self._write_external(path)
            return
        head = GraphProto(node=self.nodes, name=self.name).SerializeToString()
        tail = GraphProto(input=self.inputs, output=self.outputs).SerializeToString()
        opset = OperatorSetIdProto(domain="", version=self.opset)
        model = ModelProto(ir_version=8, producer_name="make_models", opset_import=[opset]).SerializeToString()
        tensors = [(_tensor_head(name, shape), shape) for name, shape, _ in self._random]
        small = [_field(5, helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape, a.ravel()))
                 for n, a in self._constants.items()]  # fmt: skip
        frames = [_frame(5, len(start) + 4 * math.prod(shape)) + start for start, shape in tensors]
        length = len(head) + len(tail) + sum(map(len, small)) + sum(map(len, frames))
        length += sum(4 * math.prod(shape) for _, shape in tensors)
        with path.open("wb") as file:
            file.write(model + _frame(7, length) + head)
            for seed, (frame, (_, shape, scale)) in enumerate(zip(frames, self._random, strict=True)):
                file.write(frame)
                _write_random(file, math.prod(shape), scale, seed)
            file.write(b"".join(small) + tail)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _frame(number: int, length: int) -> bytes:
    """Tag and length of a protobuf field of wire type LEN."""
    return _varint(number << 3 | 2) + _varint(length)


def _field(number: int, message: TensorProto) -> bytes:
    data: bytes = message.SerializeToString()
    return _frame(number, len(data)) + data


def _tensor_head(name: str, shape: Sequence[int]) -> bytes:
    """A TensorProto up to the bytes of its raw_data (field 9)."""
    head: bytes = TensorProto(dims=shape, data_type=TensorProto.FLOAT, name=name).SerializeToString()
    return head + _frame(9, 4 * math.prod(shape))


def _write_random(file: BinaryIO, count: int, scale: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    for start in range(0, count, _CHUNK):
        values = random.standard_normal(min(_CHUNK, count - start), np.float32)
        values *= np.float32(scale)
        file.write(values.astype("<f4").tobytes())


def _conv(
    net: Network,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: int = 1,
    *,
    stride: int = 1,
    group: int = 1,
    gain: float = 2.0,
) -> str:
    inputs, outputs = channels
    fan_in = inputs // group * kernel * kernel
    weight = net.weight(f"{name}.weight", (outputs, inputs // group, kernel, kernel), math.sqrt(gain / fan_in))
    return net.add(
        "Conv", x, weight, net.weight(f"{name}.bias", (outputs,), 0.01), dilations=[1, 1], group=group,
        kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2,
    )  # fmt: skip


def _classify(net: Network, x: str, features: int) -> None:
    x = net.add("Flatten", net.add("GlobalAveragePool", x), axis=1)
    weight = net.weight("fc.weight", (1000, features), 1 / math.sqrt(features))
    logits = net.add("Gemm", x, weight, net.weight("fc.bias", (1000,), 0.01), alpha=1.0, beta=1.0, transB=1)
    net.output(logits, "logits", (1, 1000))


def resnet50() -> Network:
    """ResNet-50 v1.5 as exported from torchvision: 25.5 M parameters, 102 MB."""
    net = Network("resnet50")
    x = net.add("Relu", _conv(net, net.input("input", (1, 3, 224, 224)), "conv1", (3, 64), 7, stride=2))
    x = net.add("MaxPool", x, ceil_mode=0, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    channels = 64
    for layer, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << layer
        for block in range(blocks):
            stride = 2 if layer and not block else 1
            x = _bottleneck(net, x, f"layer{layer + 1}.{block}", (channels, width), stride)
            channels = 4 * width
    _classify(net, x, channels)
    return net


def _bottleneck(net: Network, x: str, name: str, channels: tuple[int, int], stride: int) -> str:
    inputs, width = channels
    y = net.add("Relu", _conv(net, x, f"{name}.conv1", (inputs, width)))
    y = net.add("Relu", _conv(net, y, f"{name}.conv2", (width, width), 3, stride=stride))
    y = _conv(net, y, f"{name}.conv3", (width, 4 * width), gain=0.2)
    if inputs != 4 * width:
        x = _conv(net, x, f"{name}.downsample", (inputs, 4 * width), stride=stride, gain=1.0)
    return net.add("Relu", net.add("Add", y, x))


def pyramid_pools() -> Network:
    """YOLO's spatial pyramid of pools: maxima of 5 x 5, 9 x 9 and 13 x 13 of 128 features, between convolutions."""
    net = Network("pyramid_pools")
    x = net.add("Relu", _conv(net, net.input("input", (1, 256, 20, 20)), "reduced", (256, 128)))
    pools = [net.add("MaxPool", x, kernel_shape=[n] * 2, pads=[n // 2] * 4, strides=[1, 1]) for n in (5, 9, 13)]
    joined = net.add("Concat", x, *pools, axis=1)
    net.output(net.add("Relu", _conv(net, joined, "expanded", (512, 256))), "output", (1, 256, 20, 20))
    return net


def box_classes() -> Network:
    """The classes of a YOLO detector's boxes: the largest of the 80 scores of each, which are along the middle axis."""
    net = Network("box_classes")
    scores = net.add("Sigmoid", net.input("input", (1, 80, 8400)))
    net.output(net.add("ArgMax", scores, axis=1, keepdims=0), "output", (1, 8400), TensorProto.INT64)
    return net


def mobilenet_v2() -> Network:
    """MobileNetV2 1.0 at 224, as exported from torchvision: 3.5 M parameters."""
    net = Network("mobilenet_v2")
    x = _relu6(net, _conv(net, net.input("input", (1, 3, 224, 224)), "features.0", (3, 32), 3, stride=2))
    channels = 32
    settings = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    for stage, (expand, outputs, blocks, stride) in enumerate(settings):
        for block in range(blocks):
            name = f"features.{stage + 1}.{block}"
            x = _inverted(net, x, name, (channels, expand * channels, outputs), 1 if block else stride)
            channels = outputs
    x = _relu6(net, _conv(net, x, "features.18", (channels, 1280)))
    _classify(net, x, 1280)
    return net


def _inverted(net: Network, x: str, name: str, channels: tuple[int, int, int], stride: int) -> str:
    inputs, hidden, outputs = channels
    y = _relu6(net, _conv(net, x, f"{name}.expand", (inputs, hidden))) if hidden != inputs else x
    y = _relu6(net, _conv(net, y, f"{name}.depthwise", (hidden, hidden), 3, stride=stride, group=hidden))
    y = _conv(net, y, f"{name}.project", (hidden, outputs), gain=1.0)
    return net.add("Add", x, y) if inputs == outputs and stride == 1 else y


def _relu6(net: Network, x: str) -> str:
    return net.add("Clip", x, net.constant(0.0), net.constant(6.0))


def bert_base(length: int = 128) -> Network:
    """BERT-base as exported from transformers, with pooler: 110 M parameters, 438 MB."""
    net = Network("bert_base")
    hidden = _bert(net, length)
    pooled = _pooled(net, hidden)
    net.output(hidden, "last_hidden_state", (1, length, 768))
    net.output(pooled, "pooler_output", (1, 768))
    return net


def bert_base_plus(length: int = 128) -> Network:
    """BERT-base with a head of 50,265 classes on the pooled output, a matrix of 154 MB."""
    net = Network("bert_base_plus")
    pooled = _pooled(net, _bert(net, length))
    logits = net.add("MatMul", pooled, net.weight("head.weight", (768, 50265), 0.02))
    net.output(logits, "logits", (1, 50265))
    return net


def _pooled(net: Network, hidden: str) -> str:
    first = net.add("Gather", hidden, net.constant(0, np.int64), axis=1)
    weight = net.weight("pooler.dense.weight", (768, 768), 0.02)
    return net.add("Tanh", net.add("Gemm", first, weight, net.weight("pooler.dense.bias", (768,), 0.02), transB=1))


def _bert(net: Network, length: int) -> str:
    ids = net.input("input_ids", (1, length), TensorProto.INT64)
    mask = net.input("attention_mask", (1, length), TensorProto.INT64)
    kinds = net.input("token_type_ids", (1, length), TensorProto.INT64)
    words = net.add("Gather", net.weight("embeddings.word.weight", (30522, 768), 0.02), ids)
    words = net.add("Add", words, net.add("Gather", net.weight("embeddings.kind.weight", (2, 768), 0.02), kinds))
    positions = net.weight("embeddings.position.weight", (512, 768), 0.02)
    positions = net.add("Gather", positions, net.constant([list(range(length))], np.int64))
    x = _layer_norm(net, net.add("Add", words, positions), "embeddings.LayerNorm")
    mask = net.add("Cast", net.add("Unsqueeze", mask, net.constant([1, 2], np.int64)), to=TensorProto.FLOAT)
    mask = net.add("Mul", net.add("Sub", net.constant(1.0), mask), net.constant(-10000.0))
    for layer in range(12):
        x = _bert_layer(net, x, mask, f"encoder.layer.{layer}", length)
    return x


def _bert_layer(net: Network, x: str, mask: str, name: str, length: int) -> str:
    attended = _linear(net, _attention(net, x, mask, name, length), f"{name}.attention.output", 768, 768)
    x = _layer_norm(net, net.add("Add", attended, x), f"{name}.attention.LayerNorm")
    y = _gelu(net, _linear(net, x, f"{name}.intermediate", 768, 3072))
    return _layer_norm(net, net.add("Add", _linear(net, y, f"{name}.output", 3072, 768), x), f"{name}.LayerNorm")


def _attention(net: Network, x: str, mask: str, name: str, length: int) -> str:
    split = net.constant([1, length, 12, 64], np.int64)
    heads = {}
    for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        y = net.add("Reshape", _linear(net, x, f"{name}.attention.{part}", 768, 768), split)
        heads[part] = net.add("Transpose", y, perm=order)
    scores = net.add("Div", net.add("MatMul", heads["query"], heads["key"]), net.constant(8.0))
    weights = net.add("Softmax", net.add("Add", scores, mask), axis=-1)
    merged = net.add("Transpose", net.add("MatMul", weights, heads["value"]), perm=[0, 2, 1, 3])
    return net.add("Reshape", merged, net.constant([1, length, 768], np.int64))


def _linear(net: Network, x: str, name: str, inputs: int, outputs: int) -> str:
    y = net.add("MatMul", x, net.weight(f"{name}.weight", (inputs, outputs), 0.02))
    return net.add("Add", net.weight(f"{name}.bias", (outputs,), 0.02), y)


def _gelu(net: Network, x: str) -> str:
    y = net.add("Add", net.add("Erf", net.add("Div", x, net.constant(math.sqrt(2)))), net.constant(1.0))
    return net.add("Mul", net.add("Mul", x, y), net.constant(0.5))


def _layer_norm(net: Network, x: str, name: str) -> str:
    """LayerNormalization, decomposed as exporters do up to opset 16."""
    centered = net.add("Sub", x, net.add("ReduceMean", x, axes=[-1]))
    variance = net.add("ReduceMean", net.add("Pow", centered, net.constant(2.0)), axes=[-1])
    y = net.add("Div", centered, net.add("Sqrt", net.add("Add", variance, net.constant(1e-12))))
    y = net.add("Mul", y, net.weight(f"{name}.weight", (768,), 1.0))
    return net.add("Add", y, net.weight(f"{name}.bias", (768,), 0.02))


def linear_layers(layers: int = 90, width: int = 2828) -> Network:
    """``layers`` products of a row with a square matrix: 2.88 GB, more than a protobuf message may have."""
    net = Network("linear_layers")
    x = net.input("input", (1, width))
    for i in range(layers):
        x = net.add("Relu", _linear(net, x, f"layer{i}", width, width))
    net.output(x, "output", (1, width))
    return net


def chain(nodes: int = 10000) -> Network:
    """A deep, narrow network of ``nodes`` nodes: convolutions, residuals, gates, Concats.

    Every tenth block has reshapes, transposes, a linear layer and a softmax.
    """
    net = Network("chain")
    x = net.input("input", (1, 8, 16, 16))
    block = 0
    while len(net.nodes) + 12 < nodes:
        x = _mixing_block(net, x, f"block{block}") if block % 10 == 9 else _gated_block(net, x, f"block{block}")
        block += 1
    while len(net.nodes) < nodes:
        x = net.add("Relu", x)
    net.output(x, "output", (1, 8, 16, 16))
    return net


def split(nodes: int = 100_000) -> Network:
    """One Split with ``nodes`` outputs."""
    net = Network("split", opset=18)
    x, names = net.input("input", (nodes,)), [f"output_{i}" for i in range(nodes)]
    net.nodes.append(helper.make_node("Split", [x], names, "/Split_0", axis=0, num_outputs=nodes))
    net.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1,)) for name in names]
    return net


def concat(nodes: int = 60_000) -> Network:
    """One Concat of ``nodes`` inputs."""
    net = Network("concat")
    result = net.add("Concat", *(net.input(f"input_{i}", (1,)) for i in range(nodes)), axis=0)
    net.output(result, "output", (nodes,))
    return net


def copies(nodes: int = 100_000) -> Network:
    """``nodes`` outputs, each an Identity of the input."""
    net = Network("copies")
    x, names = net.input("input", (2,)), [f"output_{i}" for i in range(nodes)]
    net.nodes += [helper.make_node("Identity", [x], [name], f"/Identity_{i}") for i, name in enumerate(names)]
    net.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)) for name in names]
    return net


def maximum(nodes: int = 100_000) -> Network:
    """One Max of ``nodes`` inputs."""
    net = Network("maximum")
    largest = net.add("Max", *(net.input(f"input_{i}", (2,)) for i in range(nodes)))
    net.output(largest, "output", (2,))
    return net


def readers(nodes: int = 100_000) -> Network:
    """One value with ``nodes`` users, each a Mul by another constant."""
    net = Network("readers")
    x = net.input("input", (2,))
    products = [net.add("Mul", x, net.constant([i, 0.5])) for i in range(nodes)]
    net.output(net.add("Concat", *products, axis=0), "output", (2 * nodes,))
    return net


def inputs(nodes: int = 100_000) -> Network:
    """``nodes`` inputs, each with a Relu to an output."""
    net = Network("inputs")
    for i in range(nodes):
        name = f"output_{i}"
        net.nodes.append(helper.make_node("Relu", [net.input(f"input_{i}", (2,))], [name], f"/Relu_{i}"))
        net.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (2,)))
    return net


def _gated_block(net: Network, x: str, name: str) -> str:
    y = net.add("Relu", _conv(net, x, f"{name}.a", (8, 8), 3))
    gate = net.add("Sigmoid", _conv(net, y, f"{name}.gate", (8, 8)))
    y = net.add("Concat", net.add("Mul", y, gate), x, axis=1)
    y = _conv(net, y, f"{name}.b", (16, 8), gain=0.2)
    y = net.add("Add", x, net.add("Mul", y, net.constant(0.5)))
    return net.add("Clip", y, net.constant(-3.0), net.constant(3.0))


def _mixing_block(net: Network, x: str, name: str) -> str:
    tokens = net.add("Transpose", net.add("Reshape", x, net.constant([1, 8, 256], np.int64)), perm=[0, 2, 1])
    y = _linear(net, tokens, f"{name}.mix", 8, 8)
    y = net.add("Transpose", net.add("Softmax", net.add("Add", y, tokens), axis=-1), perm=[0, 2, 1])
    return net.add("Add", x, net.add("Reshape", y, net.constant([1, 8, 16, 16], np.int64)))


MODELS: dict[str, Callable[..., Network]] = {
    function.__name__: function
    for function in (
        resnet50,
        mobilenet_v2,
        pyramid_pools,
        box_classes,
        bert_base,
        bert_base_plus,
        linear_layers,
        chain,
        split,
        concat,
        copies,
        maximum,
        readers,
        inputs,
    )
}
_COUNTED = ("chain", "split", "concat", "copies", "maximum", "readers", "inputs")


def main() -> None:
    """Write the model that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("path", type=Path)
    parser.add_argument(
        "--nodes", type=int, default=10000, help="size of the chain, outputs, operands, readers or inputs"
    )
    options = parser.parse_args()
    settings = {"nodes": options.nodes} if options.model in _COUNTED else {}
    MODELS[options.model](**settings).write(options.path)


if __name__ == "__main__":
    main()
