"""Files that are no good models, by what is wrong with them, and what the error has to say.

Each maker gets an empty folder and returns the file's content; other files may be laid into the folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.unit.tiny_models import onnx_model, tflite_scale

Make = Callable[[Path], bytes]
_SHAPED: list[tuple[str, int, list[int]]] = [("x", TensorProto.FLOAT, [2, 3])]
_WEIGHT = {"c": np.ones((2, 3), np.float32)}


def nodes_of(*nodes: onnx.NodeProto, constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """A model from x to y of these nodes."""
    return onnx_model(nodes, _SHAPED, [("y", TensorProto.FLOAT, [2, 3])], constants)


def added() -> onnx.ModelProto:
    """A model with a weight."""
    return nodes_of(helper.make_node("Add", ["x", "c"], ["y"], name="the_node"), constants=_WEIGHT)


def changed(change: Callable[[onnx.ModelProto], object]) -> Make:
    """The model with a weight, spoilt by `change`."""

    def make(folder: Path) -> bytes:
        model = added()
        change(model)
        return bytes(model.SerializeToString())

    return make


def one_node(*nodes: onnx.NodeProto) -> Make:
    """A model of these nodes."""
    return lambda folder: bytes(nodes_of(*nodes).SerializeToString())


def external(location: str, length: int = 24, offset: str = "0", size: str = "24") -> Make:
    """A model whose weight is stored at `location`; the files there have `length` bytes, if there are to be any."""

    def make(folder: Path) -> bytes:
        model = added()
        point_outside(model, location.format(folder=folder), offset, size)
        if length:
            (folder.parent / "outside.bin").write_bytes(bytes(length))
            (folder / "inside.bin").write_bytes(bytes(length))
        return bytes(model.SerializeToString())

    return make


def point_outside(model: onnx.ModelProto, location: str, offset: str = "0", length: str = "24") -> None:
    """Store the weight in another file."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)


def _weight_dims(*dims: int) -> Callable[[onnx.ModelProto], object]:
    return lambda model: model.graph.initializer[0].dims.__setitem__(slice(None), dims)


def _input_dims(*dims: int) -> Callable[[onnx.ModelProto], object]:
    def change(model: onnx.ModelProto) -> None:
        for dim, size in zip(model.graph.input[0].type.tensor_type.shape.dim, dims, strict=True):
            dim.dim_value = size

    return change


def _of_opset_0(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 0


def _second_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(model.graph.initializer[0])


def _second_input(model: onnx.ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])


def _set(path: str, value: Any) -> Callable[[onnx.ModelProto], object]:
    """Set a field given by its path, like ``graph.node.0.op_type``."""

    def change(model: onnx.ModelProto) -> None:
        *names, last = path.split(".")
        place: Any = model
        for name in names:
            place = place[int(name)] if name.isdecimal() else getattr(place, name)
        if last.isdecimal():
            place[int(last)] = value
        else:
            setattr(place, last, value)

    return change


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    """A node named the_node."""
    return helper.make_node(op, inputs, outputs, name="the_node", **attributes)


def _random_bytes(folder: Path) -> bytes:
    return np.random.default_rng(0).bytes(5000)


_RELU = helper.make_node("Relu", ["x"], ["y"])

ONNX: dict[str, tuple[Make, str]] = {
    "random bytes": (_random_bytes, "m.onnx"),
    "random text": (lambda folder: b"<html><body>404 not found</body></html>", "m.onnx"),
    "zeros": (lambda folder: bytes(4096), "m.onnx"),
    "empty": (lambda folder: b"", "empty"),
    "a pointer of Git LFS": (lambda folder: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "m.onnx"),
    "a .tflite": (lambda folder: tflite_scale(), "a TFLite model, not an ONNX model"),
    "external data of a long name": (external("a" * 300, 0), "no file"),
    "external data missing": (external("inside.bin", 0), "inside.bin"),
    "external data too short": (external("inside.bin", 10), "truncated"),
    "external data past its file": (external("inside.bin", offset="9999999999"), "truncated"),
    "external data with a negative offset": (external("inside.bin", offset="-8"), "'c'"),
    "external data with a length of words": (external("inside.bin", size="many"), "'c'"),
    "external data of another length": (external("inside.bin", size="20"), "'c'"),
    "external data with an absolute path": (external("{folder}/inside.bin"), "relative"),
    "external data above": (external("../outside.bin"), "outside.bin"),
    "external data above by a detour": (external("x/../../outside.bin"), "outside.bin"),
    "external data in a directory": (external("."), "'c'"),
    "external data nowhere": (external(""), "'c'"),
    "a cycle": (
        one_node(helper.make_node("Add", ["x", "y"], ["a"], name="the_node"), helper.make_node("Relu", ["a"], ["y"])),
        "the_node",
    ),
    "a node that reads itself": (one_node(node("Add", ["x", "y"], ["y"])), "the_node"),
    "two values of a name": (one_node(_RELU, node("Neg", ["x"], ["y"])), "'y'"),
    "a result with the name of an input": (one_node(_RELU, node("Neg", ["y"], ["x"])), "'x'"),
    "two weights of a name": (changed(_second_weight), "'c'"),
    "two inputs of a name": (changed(_second_input), "'x'"),
    "a value without a producer": (one_node(node("Add", ["x", "nowhere"], ["y"])), "'nowhere'"),
    "an output without a producer": (changed(_set("graph.output.0.name", "nowhere")), "'nowhere'"),
    "a weight shorter than its shape": (changed(_set("graph.initializer.0.raw_data", bytes(8))), "'c'"),
    "a weight longer than its shape": (changed(_set("graph.initializer.0.raw_data", bytes(80))), "'c'"),
    "a weight without numbers": (changed(lambda m: m.graph.initializer[0].ClearField("raw_data")), "'c'"),
    "a weight of absurd dims": (changed(_weight_dims(2**40, 2**40)), "'c'"),
    "a weight of negative dims": (changed(_weight_dims(-2, -3)), "'c'"),
    "a weight of an unknown type": (changed(_set("graph.initializer.0.data_type", 99)), "'c'"),
    "a weight without a type": (changed(_set("graph.initializer.0.data_type", 0)), "'c'"),
    "an input of an unknown type": (changed(_set("graph.input.0.type.tensor_type.elem_type", 99)), "'x'"),
    "an input of absurd dims": (changed(_input_dims(2**62, 2**62)), ""),
    "an input of negative dims": (changed(_input_dims(-7, 3)), "'x'"),
    "an input without a type": (changed(lambda m: m.graph.input[0].ClearField("type")), "'x'"),
    "no graph": (changed(lambda m: m.ClearField("graph")), "m.onnx"),
    "no outputs": (changed(lambda m: m.graph.ClearField("output")), "output"),
    "an unknown op": (one_node(node("Frobnicate", ["x"], ["y"])), "the_node' Frobnicate"),
    "no op at all": (one_node(node("", ["x"], ["y"])), "the_node"),
    "an unknown domain": (one_node(node("Frobnicate", ["x"], ["y"], domain="nobody.knows")), "nobody.knows"),
    "a known op in an unknown domain": (one_node(node("Relu", ["x"], ["y"], domain="nobody.knows")), "the_node"),
    "an op before its first version": (
        changed(lambda m: (_set("graph.node.0.op_type", "Gelu")(m), _set("opset_import.0.version", 13)(m))),
        "Gelu",
    ),
    "an opset of 0": (changed(_set("opset_import.0.version", 0)), "opset"),
    "an opset of -1": (changed(_set("opset_import.0.version", -1)), "opset"),
    "opset 0": (changed(_of_opset_0), "opset"),
    "an attribute that is missing": (one_node(node("Cast", ["x"], ["y"])), "the_node' Cast-13"),
    "an attribute of another type": (one_node(node("Softmax", ["x"], ["y"], axis="last")), "the_node' Softmax-13"),
    "an axis out of range": (one_node(node("Softmax", ["x"], ["y"], axis=5)), "the_node' Softmax-13"),
    "too few operands": (one_node(node("Add", ["x"], ["y"])), "the_node' Add-14"),
    "too many operands": (one_node(node("Relu", ["x", "x", "x"], ["y"])), "the_node' Relu-14"),
    "too many results": (one_node(node("Relu", ["x"], ["y", "z", "w"])), "the_node' Relu-14"),
    "types that do not go together": (
        one_node(helper.make_node("Shape", ["x"], ["s"]), node("Add", ["x", "s"], ["y"])),
        "the_node' Add-14",
    ),
}  # fmt: skip


def _tflite(change: Callable[[Any, Any], object]) -> Make:
    """The tiny model with its tables changed; `change` gets the schema's module and the model's table."""

    def make(folder: Path) -> bytes:
        import flatbuffers
        from ai_edge_litert import schema_py_generated as schema

        model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(tflite_scale(), 0))
        change(schema, model)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    return make


def _at(path: str, value: Any) -> Make:
    """The tiny model with one field changed, given by its path."""

    def change(schema: Any, model: Any) -> None:
        *names, last = path.split(".")
        place = model
        for name in names:
            place = place[int(name)] if name.isdecimal() else getattr(place, name)
        setattr(place, last, value)

    return _tflite(change)


def _custom(schema: Any, model: Any) -> None:
    code = model.operatorCodes[0]
    code.builtinCode, code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM, schema.BuiltinOperator.CUSTOM
    code.customCode = "Frobnicate"


def _unknown_op(schema: Any, model: Any) -> None:
    model.operatorCodes[0].builtinCode, model.operatorCodes[0].deprecatedBuiltinCode = 999, 127


def _reads_its_result(schema: Any, model: Any) -> None:
    model.subgraphs[0].operators[0].inputs = [2, 1]


def _other_sizes(schema: Any, model: Any) -> None:
    model.subgraphs[0].tensors[1].shape, model.buffers[1].data = [2], np.zeros(8, np.uint8)


def _two_producers(schema: Any, model: Any) -> None:
    model.subgraphs[0].operators.append(model.subgraphs[0].operators[0])


TFLITE: dict[str, tuple[Make, str]] = {
    "random bytes": (_random_bytes, "m.tflite"),
    "random bytes after the mark": (lambda folder: b"\x1c\0\0\0TFL3" + _random_bytes(folder), "m.tflite"),
    "random text": (lambda folder: b"<html><body>404 not found</body></html>", "m.tflite"),
    "zeros": (lambda folder: bytes(4096), "m.tflite"),
    "empty": (lambda folder: b"", "empty"),
    "only the mark": (lambda folder: b"\0\0\0\0TFL3", "m.tflite"),
    "an .onnx": (lambda folder: bytes(added().SerializeToString()), "not a TFLite model"),
    "a weight shorter than its shape": (_at("buffers.1.data", np.zeros(2, np.uint8)), "'factor'"),
    "a weight of absurd dims": (_at("subgraphs.0.tensors.1.shape", [2**30, 2**30, 2**30]), "'factor'"),
    "a weight of negative dims": (_at("subgraphs.0.tensors.1.shape", [-4]), "'factor'"),
    "an input of negative dims": (_at("subgraphs.0.tensors.0.shape", [-4, 3]), "'x'"),
    "an unknown type": (_at("subgraphs.0.tensors.1.type", 99), "'factor'"),
    "a buffer that is not there": (_at("subgraphs.0.tensors.1.buffer", 77), "no buffer 77"),
    "an operand that is not there": (_at("subgraphs.0.operators.0.inputs", [0, 77]), "77"),
    "a result that is not there": (_at("subgraphs.0.operators.0.outputs", [77]), "77"),
    "an output that is not there": (_at("subgraphs.0.outputs", [77]), "77"),
    "an opcode that is not there": (_at("subgraphs.0.operators.0.opcodeIndex", 7), "7"),
    "an unknown op": (_tflite(_unknown_op), "999"),
    "a custom op": (_tflite(_custom), "Frobnicate"),
    "an unknown version of an op": (_at("operatorCodes.0.version", 999), "MUL-999"),
    "a version of the file": (_at("version", 1), "version"),
    "no graph": (_at("subgraphs", []), ""),
    "a cycle": (_tflite(_reads_its_result), "MUL"),
    "a tensor made twice": (_tflite(_two_producers), "'y'"),
    "an output without a producer": (_at("subgraphs.0.operators", []), "'y'"),
    "shapes that do not broadcast": (_tflite(_other_sizes), "MUL"),
}  # fmt: skip
