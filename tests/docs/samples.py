"""Small models and data under the names that the pages use. A page's folder has those that its blocks mention."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from onnxtfl import onnx_to_tflite
from tests.docs.blocks import ROOT
from tests.unit.tiny_models import onnx_model, tflite_scale

FLOAT = TensorProto.FLOAT
Builder = Callable[[], bytes]


def _random(*shape: int) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) / 4).astype(np.float32)


def image_model(batch: int | str = 1, size: int | str = 32) -> bytes:
    """Two convolutions and a classifier: ``image`` [batch, 3, size, size] -> ``scores`` [batch, 10]."""
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["features"], "conv1", strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["active"], "relu1"),
        helper.make_node("Conv", ["active", "w2"], ["more"], "conv2"),
        helper.make_node("GlobalAveragePool", ["more"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], "classifier"),
    ]
    constants = {
        "w1": _random(8, 3, 3, 3),
        "b1": _random(8),
        "w2": _random(16, 8, 3, 3),
        "w3": _random(16, 10),
        "b3": _random(10),
    }
    inputs = [("image", FLOAT, [batch, 3, size, size])]
    return onnx_model(nodes, inputs, [("scores", FLOAT, [batch, 10])], constants).SerializeToString()


def text_model() -> bytes:
    """An embedding and a layer over it: ``tokens`` int64 [batch, length] -> ``logits`` [batch, length, 4]."""
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["embedded"], "embed"),
        helper.make_node("MatMul", ["embedded", "weight"], ["logits"], "project"),
    ]
    inputs = [("tokens", TensorProto.INT64, ["batch", "length"])]
    outputs = [("logits", FLOAT, ["batch", "length", 4])]
    return onnx_model(nodes, inputs, outputs, {"table": _random(50, 8), "weight": _random(8, 4)}).SerializeToString()


def counter_model() -> bytes:
    """A .tflite with a variable: ``y`` is the sum of all ``x`` so far."""
    from tests.unit.test_stateful_models import tflite
    from tests.unit.tfl_states import COUNTER

    return tflite(COUNTER, signatures=True)


def labeled_model() -> bytes:
    """A .tflite with TFLite Metadata and a file of labels."""
    from tests.unit.test_metadata import described

    return described()


def quantized_model() -> bytes:
    """Conv between DequantizeLinear and QuantizeLinear: ``x`` float [1, 2, 4, 4] -> ``y`` float [1, 3, 4, 4]."""
    make = helper.make_node
    nodes = [
        make("QuantizeLinear", ["x", "xs", "xz"], ["xq"], "quantize_x"),
        make("DequantizeLinear", ["xq", "xs", "xz"], ["xd"], "dequantize_x"),
        make("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], "dequantize_w"),
        make("Conv", ["xd", "wd"], ["c"], "conv"),
        make("QuantizeLinear", ["c", "ys", "yz"], ["yq"], "quantize_y"),
        make("DequantizeLinear", ["yq", "ys", "yz"], ["y"], "dequantize_y"),
    ]
    constants = {
        "xs": np.float32(0.02), "xz": np.uint8(128), "ws": np.float32(0.01), "wz": np.int8(0),
        "wq": np.random.default_rng(0).integers(-127, 128, (3, 2, 1, 1)).astype(np.int8),
        "ys": np.float32(0.05), "yz": np.uint8(120),
    }  # fmt: skip
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    model = onnx_model(nodes, [("x", FLOAT, [1, 2, 4, 4])], [("y", FLOAT, [1, 3, 4, 4])], arrays)
    return model.SerializeToString()


def sequence_model() -> bytes:
    """The elements of the sequence ``xs`` [1, 2], joined along axis 0."""
    node = helper.make_node("ConcatFromSequence", ["xs"], ["y"], "join", axis=0)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_sequence_value_info("xs", FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", FLOAT, ["n", 2])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def broken_model() -> bytes:
    """`image_model` converted by someone who got a weight of conv2 wrong."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load_from_string(image_model())
    for tensor in model.graph.initializer:
        if tensor.name == "w2":
            changed = numpy_helper.to_array(tensor).copy()
            changed[3] *= -1
            tensor.CopyFrom(numpy_helper.from_array(changed, "w2"))
    return _converted(model.SerializeToString())


def unsupported_model() -> bytes:
    """A node of a domain that no one but its maker knows."""
    node = helper.make_node("Frobnicate", ["x"], ["y"], "frob", domain="com.example")
    model = onnx_model([node], [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return model.SerializeToString()


def _converted(source: bytes) -> bytes:
    data = onnx_to_tflite(source, check=False).data
    assert data is not None
    return data


def samples_npz() -> bytes:
    """Eight samples for `image_model`."""
    import io

    out = io.BytesIO()
    np.savez(out, image=np.random.default_rng(1).random((8, 1, 3, 32, 32), np.float32))
    return out.getvalue()


FILES: dict[str, Builder] = {
    "model.onnx": image_model,
    "model.tflite": lambda: _converted(image_model()),
    "foreign.tflite": broken_model,
    "dynamic.onnx": lambda: image_model("batch", "size"),
    "text.onnx": text_model,
    "quantized.onnx": quantized_model,
    "quantized.tflite": lambda: _converted(quantized_model()),
    "counter.tflite": counter_model,
    "labeled.tflite": labeled_model,
    "sequence.onnx": sequence_model,
    "unsupported.onnx": unsupported_model,
    "scale.tflite": tflite_scale,
    "samples.npz": samples_npz,
}


@functools.cache
def content(name: str) -> bytes:
    """The bytes of a sample."""
    return FILES[name]()


def prepare(folder: Path, text: str) -> None:
    """Write the samples that ``text`` mentions, and examples/ if it does."""
    for name in FILES:
        if name in text:
            (folder / name).write_bytes(content(name))
    if "zoo" in text:
        (folder / "zoo").mkdir()
        for name in ("model.onnx", "dynamic.onnx", "unsupported.onnx"):
            (folder / "zoo" / name).write_bytes(content(name))
    if "llm/" in text:
        from tests.unit.tiny_decoders import write_decoder

        (folder / "llm").mkdir()
        write_decoder(folder / "llm")
    if "examples/" in text:
        shutil.copytree(ROOT / "examples", folder / "examples")
