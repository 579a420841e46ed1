"""The ONNX reader: what stands in the file comes out, and what cannot be a model is refused in one line."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError
from onnxtfl.formats.onnx.payload import decode_varints, encode_varint
from onnxtfl.formats.onnx.reader import read as read_model
from onnxtfl.formats.onnx.tensors import MessageData
from onnxtfl.formats.onnx.writer import write
from onnxtfl.ir.data import ArrayData, FileData
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.types import DType, OptionalType, SequenceType, TensorType
from onnxtfl.passes.canonical.inline import inline_functions
from tests.fuzz.onnx_samples import CONTROL_FLOW, FUNCTIONS, TYPES, sparse, with_weights


def model(text: str, **initializers: Any) -> onnx.ModelProto:
    """A model from ONNX's text form, with arrays as initializers."""
    result = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    result.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in initializers.items())
    return result


def read(source: Any) -> Graph:
    """The main graph of a model, calls of its functions inlined."""
    whole = read_model(source)
    inline_functions(whole)
    return whole.main


def with_tensor(tensor: TensorProto) -> onnx.ModelProto:
    """A model that gives out one initializer."""
    info = helper.make_tensor_value_info(tensor.name, tensor.data_type, None)
    graph = helper.make_graph([], "g", [], [info], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def ops(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def only(graph: Graph, op: str) -> Node:
    (node,) = [n for n in graph.nodes if n.op.name == f"onnx.{op}"]
    return node


# Tensors


@pytest.mark.parametrize("form", ["path", "bytes", "message"])
def test_all_element_types(tmp_path: Path, form: str) -> None:
    proto = with_weights()
    source: Any = proto if form == "message" else proto.SerializeToString()
    if form == "path":
        (tmp_path / "m.onnx").write_bytes(source)
        source = tmp_path / "m.onnx"
    graph = read(source)
    for tensor, value in zip(proto.graph.initializer, graph.outputs, strict=True):
        expected = numpy_helper.to_array(tensor)
        assert value.data is not None and value.name == tensor.name
        assert value.data.numpy().dtype == value.dtype.numpy
        if value.dtype is not DType.STRING:
            packed = np.concatenate([c.copy() for c in value.data.chunks()])
            assert packed.nbytes == value.data.nbytes
            assert value.data.numpy().tobytes() == expected.astype(value.dtype.numpy).tobytes(), value
        else:
            assert value.data.numpy().tolist() == expected.tolist()


def test_large_weights_stay_in_the_file(tmp_path: Path) -> None:
    array = np.arange(5000, dtype=np.float32).reshape(50, 100)
    packed = helper.make_tensor("packed", TensorProto.FLOAT, array.shape, array.ravel().tolist())
    proto = model("main (float[50, 100] x) => (float[50, 100] y) { z = Add(x, raw) y = Add(z, packed) }", raw=array)
    proto.graph.initializer.append(packed)
    onnx.save(proto, tmp_path / "m.onnx")
    for node in read(tmp_path / "m.onnx").nodes:
        data = node.operand(1).data
        assert isinstance(data, FileData)
        assert np.array_equal(data.numpy(), array)


def test_small_weights_are_read() -> None:
    graph = read(model("main (float[2] x) => (float[2] y) { y = Add(x, w) }", w=np.ones(2, np.float32)))
    value = only(graph, "Add").operand(1)
    assert isinstance(value.data, ArrayData) and value.name == "w"


def _tag(field: int, wire: int) -> bytes:
    return encode_varint(field << 3 | wire)


@pytest.mark.parametrize("count", [3, 700, 250_000])
@pytest.mark.parametrize(
    ("number", "field", "dtype"),
    [(TensorProto.INT64, 7, "int64"), (TensorProto.FLOAT, 4, "float32"), (TensorProto.DOUBLE, 10, "float64"),
     (TensorProto.INT8, 5, "int8"), (TensorProto.UINT32, 11, "uint32"), (TensorProto.FLOAT16, 5, "float16")],
)  # fmt: skip
def test_elements_with_a_tag_each(count: int, number: int, field: int, dtype: str) -> None:
    random = np.random.default_rng(count)
    array = random.integers(0, 100, count).astype(dtype) if field in (7, 11) else random.standard_normal(count) * 50
    array = array.astype(dtype)
    head = TensorProto(name="t", data_type=number, dims=[count]).SerializeToString()
    if array.dtype.itemsize == {4: 4, 10: 8}.get(field):
        wire = {4: 5, 10: 1}[field]
        items = [_tag(field, wire) + x.tobytes() for x in array]
    else:
        numbers = array.view(np.uint16) if dtype == "float16" else array
        items = [_tag(field, 0) + encode_varint(int(x) & 0xFFFFFFFFFFFFFFFF) for x in numbers]
    proto = with_tensor(TensorProto(name="t", data_type=number))
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString() + _field(5, head + b"".join(items))
    del proto.graph.node[:]
    proto.ClearField("graph")
    value = read(proto.SerializeToString() + _field(7, graph)).outputs[0]
    assert np.array_equal(value.numpy(), array)


def _field(number: int, content: bytes) -> bytes:
    return _tag(number, 2) + encode_varint(len(content)) + content


def test_payload_in_pieces() -> None:
    array = np.arange(3000, dtype=np.int32) - 1500
    head = TensorProto(name="t", data_type=TensorProto.INT32, dims=[3000]).SerializeToString()
    half = TensorProto(int32_data=array[:1500].tolist()).SerializeToString()
    rest = TensorProto(int32_data=array[1500:].tolist()).SerializeToString()
    proto = with_tensor(TensorProto(name="t", data_type=TensorProto.INT32))
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString() + _field(5, half + head + rest)
    proto.ClearField("graph")
    assert np.array_equal(read(proto.SerializeToString() + _field(7, graph)).outputs[0].numpy(), array)


def test_varints() -> None:
    numbers = [0, 1, 127, 128, 300, 1 << 31, (1 << 64) - 1, 5]
    buffer = np.frombuffer(b"".join(map(encode_varint, numbers)) + b"\x80", np.uint8)
    values, used = decode_varints(buffer)
    assert values.tolist() == numbers and used == len(buffer) - 1


def test_sparse_and_attribute_tensors() -> None:
    graph = read(sparse().SerializeToString())
    expected = np.zeros((3, 4), np.float32)
    expected[0, 1], expected[1, 1], expected[2, 3] = 1, 2, 3
    add = only(graph, "Add")
    assert np.array_equal(add.operand(1).numpy(), expected)
    producer = add.operand(0).producer
    assert producer is not None
    assert np.array_equal(producer.attributes["sparse_value"].numpy(), expected)
    other = only(graph, "Other")
    assert (other.op.domain, other.op.version) == ("far.away", 3)
    large, small = other.attributes["tensors"]
    assert isinstance(large, FileData) and large.shape == (4000,) and small.shape == (3,)
    assert other.attributes["names"] == ("p", "q")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": [7]}, "tensor 't': has 24 bytes, its shape needs 28"),
        ({"dims": [5]}, "tensor 't': has 24 bytes, its shape needs 20"),
        ({"dims": [-6]}, "invalid shape"),
        ({"dims": [1 << 40, 1 << 40]}, "invalid shape"),
        ({"dims": [0, 1 << 40]}, "has 24 bytes, its shape needs 0"),
        ({"data_type": 0}, "unknown element type"),
        ({"data_type": 99}, "unknown element type"),
    ],
)
def test_bad_initializers(change: dict[str, Any], message: str) -> None:
    tensor = numpy_helper.from_array(np.arange(6, dtype=np.float32), "t")
    proto = with_tensor(tensor)
    proto.graph.initializer[0].ClearField("dims")
    for key, value in change.items():
        if key == "dims":
            proto.graph.initializer[0].dims.extend(value)
        else:
            setattr(proto.graph.initializer[0], key, value)
    with pytest.raises(InvalidModelError, match=message):
        read(proto)


@pytest.mark.parametrize("number", [TensorProto.INT64, TensorProto.FLOAT])
def test_large_initializer_shorter_than_its_shape(number: int) -> None:
    tensor = helper.make_tensor("t", number, [3000], list(range(3000)))
    tensor.dims[0] = 3001
    with pytest.raises(InvalidModelError, match="tensor 't': has"):
        read(with_tensor(tensor).SerializeToString())


# External data


def external_model(folder: Path, location: str, offset: int = 0, length: int | None = 4000, size: int = 1000) -> Path:
    """A model in `folder` whose weight stands in `location`."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)} | ({} if length is None else {"length": str(length)})
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path = folder / "m.onnx"
    path.write_bytes(with_tensor(tensor).SerializeToString())
    return path


WEIGHTS = np.arange(1000, dtype=np.float32)


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"12345678" + WEIGHTS.tobytes())
    for length in (4000, None):
        graph = read(external_model(tmp_path, "data/w.bin", 8, length))
        assert np.array_equal(graph.outputs[0].numpy(), WEIGHTS)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("/etc/passwd", "only relative paths"),
        ("C:\\w.bin", "only relative paths"),
        ("\\\\host\\w.bin", "only relative paths"),
        ("", "only relative paths"),
        ("../w.bin", "'..' is not allowed"),
        ("a\\..\\..\\w.bin", "'..' is not allowed"),
        ("none.bin", "external data is missing"),
        ("folder", "external data is missing"),
    ],
)
def test_external_data_elsewhere(tmp_path: Path, location: str, message: str) -> None:
    (tmp_path / "inner" / "folder").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    with pytest.raises(InvalidModelError, match=message):
        read(external_model(tmp_path / "inner", location))


def test_external_data_too_short(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes()[:-1])
    with pytest.raises(InvalidModelError, match="truncated"):
        read(external_model(tmp_path, "w.bin"))
    with pytest.raises(InvalidModelError, match="3996 bytes of external data"):
        read(external_model(tmp_path, "w.bin", length=3996))
    with pytest.raises(InvalidModelError, match="offset '-4'"):
        read(external_model(tmp_path, "w.bin", offset=-4))


def test_external_data_of_bytes(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="pass the model as a path"):
        read(external_model(tmp_path, "w.bin").read_bytes())


@pytest.mark.skipif(sys.platform == "win32", reason="symlinks need rights on Windows")
def test_hub_cache(tmp_path: Path) -> None:
    """Snapshots of symlinks into a directory of blobs, as hub caches lay them."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    external_model(blobs, "m.onnx_data").rename(blobs / "1234")
    (blobs / "5678").write_bytes(WEIGHTS.tobytes())
    (snapshot / "m.onnx").symlink_to("../../../blobs/1234")
    (snapshot / "m.onnx_data").symlink_to("../../../blobs/5678")
    assert np.array_equal(read(snapshot / "m.onnx").outputs[0].numpy(), WEIGHTS)


@pytest.mark.skipif(sys.platform == "win32", reason="symlinks need rights on Windows")
def test_symlink_away_from_the_model(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    (tmp_path / "inner" / "w.bin").symlink_to("../w.bin")
    with pytest.raises(InvalidModelError, match="a symlink out of"):
        read(external_model(tmp_path / "inner", "w.bin"))


@pytest.mark.skipif(sys.platform == "win32", reason="symlinks need rights on Windows")
def test_model_in_a_linked_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w.bin").write_bytes(WEIGHTS.tobytes())
    external_model(tmp_path / "real", "w.bin")
    (tmp_path / "link").symlink_to("real")
    assert np.array_equal(read(tmp_path / "link" / "m.onnx").outputs[0].numpy(), WEIGHTS)


# Graphs


def test_names_types_and_since_versions() -> None:
    proto = model("main (float[N, 3] x) => (float[N, 3] y) { h = Relu (x) y = Softmax <axis: int = 1> (h) }")
    proto.graph.node[0].name = "first"
    graph = read(proto)
    assert [(n.op.name, n.op.version) for n in graph.nodes] == [("onnx.Relu", 14), ("onnx.Softmax", 13)]
    assert graph.first is not None and graph.first.name == "first"
    assert graph.inputs[0].type == TensorType(DType.FLOAT32, (symbol("N"), 3)) == graph.outputs[0].type
    assert [v.name for v in (*graph.inputs, *graph.outputs)] == ["x", "y"]
    assert graph.first.result.origin is not None and graph.first.result.origin.tensor == "h"
    assert graph.last is not None and graph.last.attributes == {"axis": 1}


def test_unknown_ops_stand_as_they_are() -> None:
    proto = model('main (float[2] x) => (float[2] y) { h = Nonsense (x) y = my.domain.Op <a: string = "b"> (h) }')
    first, second = read(proto).nodes
    assert (first.op.name, first.op.version, first.op.domain) == ("onnx.Nonsense", 17, "")
    assert (second.op.name, second.op.version, second.op.domain) == ("onnx.Op", 1, "my.domain")
    assert second.attributes == {"a": "b"}


def test_both_names_of_the_domain() -> None:
    proto = model("main (float[2] x) => (float[2] y) { y = Relu (x) }")
    proto.opset_import[0].domain = proto.graph.node[0].domain = "ai.onnx"
    (node,) = read(proto).nodes
    assert (node.op.domain, node.op.version) == ("", 14)


def test_a_model_that_imports_other_domains_only() -> None:
    """ONNX's own ops are then the newest, as for ONNX Runtime."""
    proto = model("main (float[2] x) => (float[2] y) { y = Relu (x) }")
    proto.opset_import[0].domain = "com.microsoft"
    assert only(read(proto), "Relu").op.version == 14


def test_a_domain_of_onnx_that_is_not_imported() -> None:
    """Its ops are the newest, as for ONNX Runtime."""
    proto = model("main (float[2] x) => (float[2] y) { y = ai.onnx.ml.Binarizer <threshold: float = 0.5> (x) }")
    assert [entry.domain for entry in proto.opset_import] == [""]
    assert only(read(proto), "Binarizer").op.version == 1


@pytest.mark.parametrize("versions", [(9, 13), (13, 9), (0, 13)])
def test_a_domain_that_is_imported_twice(versions: tuple[int, int]) -> None:
    """The last import counts, as for ONNX Runtime."""
    proto = model("main (float[2] x) => (float[2] y) { y = Softmax (x) }")
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid("", version) for version in versions)
    assert only(read(proto), "Softmax").op.version == (13 if versions[1] == 13 else 1)


def test_models_from_before_opsets() -> None:
    proto = model("main (float[2] x) => (float[2] y) { y = Relu (x) }")
    del proto.opset_import[:]
    proto.ir_version = 2
    assert only(read(proto), "Relu").op.version == 1
    proto.ir_version = 8
    with pytest.raises(InvalidModelError, match=r"no opset of domain 'ai\.onnx'"):
        read(proto)


def test_dimension_names() -> None:
    names = ["batch size", "batch_size", "?", "-1", "2n", "class", "None", "长度", "a.b"]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*names, None, -1, 0, "a.b"])
    graph = read(helper.make_model(helper.make_graph([], "g", [info], [info])))
    shape = [str(d) for d in graph.inputs[0].shape]
    assert shape[:2] == ["batch_size", "batch_size_2"]
    assert [s for s in shape if "?" in s] == [shape[i] for i in (2, 3, 6, 9, 10)]
    assert shape[4:6] == ["_2n", "_class"] and shape[8] == shape[12] == "a_b" and shape[11] == "0"
    assert len(set(shape)) == 12
    assert read_model(helper.make_model(helper.make_graph([], "g", [info], [info]))).dim_names["a_b"] == "a.b"


def test_other_types() -> None:
    graph = read(parser.parse_model(TYPES))
    s, o, f = (v.type for v in graph.inputs)
    assert s == SequenceType(TensorType(DType.FLOAT32, (symbol("N"),)))
    assert o == OptionalType(TensorType(DType.FLOAT32, (symbol("M"),)))
    assert isinstance(f, TensorType) and f.rank == 4
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    unknown = read(helper.make_model(helper.make_graph([], "g", [info], [info]))).inputs[0].tensor_type
    assert unknown == TensorType(DType.FLOAT32, None)


def test_maps_are_refused() -> None:
    info = onnx.ValueInfoProto(name="x")
    info.type.map_type.key_type = TensorProto.INT64
    with pytest.raises(UnsupportedError, match="'x' has the type map"):
        read(helper.make_model(helper.make_graph([], "g", [info], [info])))


def test_initializers_that_are_inputs_are_constants() -> None:
    proto = model("main (float[2] x, float[2] w) => (float[2] y) { y = Add (x, w) }", w=np.ones(2, np.float32))
    graph = read(proto)
    assert [v.name for v in graph.inputs] == ["x"]
    assert only(graph, "Add").operand(1).is_constant


def test_absent_operands_and_results() -> None:
    graph = read(model('main (float[2] x) => (float[2] y) { y, "", z = Some (x, "", x) }'))
    node = only(graph, "Some")
    assert [v is None for v in node.operands] == [False, True, False]
    assert [r.name for r in node.results] == ["y", None, "z"]


def test_nodes_out_of_order_are_sorted() -> None:
    proto = model("main (float[2] x) => (float[2] d) { a = Abs(x) b = Neg(a) c = Exp(b) d = Add(a, c) }")
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes[i] for i in (3, 1, 2, 0))
    assert ops(read(proto)) == ["onnx.Abs", "onnx.Neg", "onnx.Exp", "onnx.Add"]


def test_attributes() -> None:
    node = helper.make_node(
        "Op", ["x"], ["y"], "n", None, "d", i=1, f=0.5, s="text", b=b"\xff", li=[1, 2], lf=[1.0], ls=["a", "b"],
        t=numpy_helper.from_array(np.ones(3, np.int8)), tp=helper.make_tensor_type_proto(1, [2]),
    )  # fmt: skip
    node.attribute.append(onnx.AttributeProto(name="e", type=onnx.AttributeProto.INTS))
    node.attribute.append(onnx.AttributeProto(name="old", ints=[3]))
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    attributes = only(read(helper.make_model(helper.make_graph([node], "g", [info], [out]))), "Op").attributes
    tensor = attributes.pop("t")
    assert tensor.dtype is DType.INT8 and tensor.numpy().tolist() == [1, 1, 1]
    assert attributes == {
        "i": 1, "f": 0.5, "s": "text", "b": b"\xff", "li": (1, 2), "lf": (1.0,), "ls": ("a", "b"), "e": (),
        "old": (3,), "tp": TensorType(DType.FLOAT32, (2,)),
    }  # fmt: skip


def test_nodes_with_equal_attributes_are_read_once_and_do_not_share_them() -> None:
    text = "g (float[2] x) => (float[2] y) { a = Elu<alpha=0.0>(x) b = Elu<alpha=0.0>(a) y = Elu<alpha=-0.0>(b) }"
    first, second, third = read(model(text)).nodes
    first.attributes["alpha"] = 2.0
    assert [str(node.attributes["alpha"]) for node in (second, third)] == ["0.0", "-0.0"]
    with pytest.raises(InvalidModelError, match="2 operands, the op has 1"):
        read(model("g (float[2] x) => (float[2] y) { a = Elu<alpha=0.0>(x) y = Elu<alpha=0.0>(a, a) }"))


def test_captures_become_operands() -> None:
    graph = read(parser.parse_model(CONTROL_FLOW))
    branch = only(graph, "If")
    then, other = branch.attributes["then_branch"], branch.attributes["else_branch"]
    names = [v.name for v in branch.present_operands]
    assert branch.attributes["captures"] == 3 and names == ["flag", "h", "flag", "x"]
    for inner in (then, other):
        assert [v.name for v in inner.inputs] == ["h", "flag", "x"]
    assert [v.is_constant for n in then.nodes for v in n.operands if v] == [False, True]
    nested = only(other, "If")
    assert [v.name for v in nested.present_operands] == ["flag", "x", "h"]
    loop = only(graph, "Loop")
    assert loop.attributes["captures"] == 1 and len(loop.operands) == 4
    assert [v.name for v in loop.attributes["body"].inputs] == ["i", "go", "state", "h"]
    inside = {id(v) for g in (then, other) for n in g.nodes for v in n.present_operands}
    assert not inside & {id(v) for v in branch.operands}


def test_functions_are_inlined() -> None:
    graph = read(parser.parse_model(FUNCTIONS))
    assert ops(graph) == [f"onnx.{op}" for op in ("Constant", "Constant", "Mul", "LeakyRelu", "Mul", "Neg", "Identity")]
    nodes = list(graph.nodes)
    assert nodes[0].attributes["value_float"] == 0.5 and nodes[1].attributes["value_float"] == 2.0
    assert nodes[3].attributes == {"alpha": 0.5} and nodes[3].op.version == 6
    assert nodes[2].op.version == 13
    assert [v.name for v in graph.outputs] == ["y", "same"]


def test_functions_that_call_themselves() -> None:
    text = FUNCTIONS.replace("d = Mul (a, s)", "d = local.outer <alpha: float = 1.0> (a)")
    with pytest.raises(InvalidModelError, match="is recursive"):
        read(parser.parse_model(text))


def test_what_the_file_says_beside_the_graph() -> None:
    proto = model("main (float[2] x) => (float[2] y) { y = Relu (x) }")
    proto.producer_name = "someone"
    proto.metadata_props.add(key="names", value="{}")
    whole = read_model(proto)
    assert whole.format == "onnx" and whole.opsets == {"": 17} and whole.metadata.properties == {"names": "{}"}
    assert whole.metadata.producer.name == "someone" and whole.metadata.producer.ir_version == 8


def test_calls_of_functions_are_nodes_until_they_are_inlined() -> None:
    whole = read_model(parser.parse_model(FUNCTIONS))
    assert {key[1] for key in whole.functions} == {"outer", "scaled", "two"}
    assert [node.op.domain for node in whole.main.nodes if node.op.name == "onnx.outer"] == ["local"]


# Bad input


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("main (float[2] x) => (float[2] b) { a = Add(x, b) b = Neg(a) }", "cycle"),
        (
            "main (float[2] x) => (float[2] b) { a = Abs(x) a = Neg(x) b = Neg(a) }",
            "two values of graph .* the name 'a'",
        ),
        ("main (float[2] x) => (float[2] x) { x = Neg(x) }", "cycle|two values of graph 'main' have the name 'x'"),
        (
            "main (float[2] x, float[2] x) => (float[2] y) { y = Neg(x) }",
            "two values of graph 'main' have the name 'x'",
        ),
        ("main (float[2] x) => (float[2] y) { y = Neg(lost) }", "node 'y' uses 'lost', which no node produces"),
        ("main (float[2] x) => (float[2] y) { z = Neg(x) }", "uses 'y', which no node produces"),
        ("main (float[2] x) => () { z = Neg(x) }", "no graph with outputs"),
        ("main (float[-5] x) => (float[2] y) { y = Neg(x) }", "input 'x' has the invalid shape"),
        ("main (float[9999999999, 9999999999] x) => (float[2] y) { y = Neg(x) }", "invalid shape"),
        ("main (float[2] x) => (float[2] y) { y = Op <a: int = @b> (x) }", "refers to one of a function"),
        ("main (float[2] x) => (float[2] y) { y = Op <a: int = 1, a: int = 2> (x) }", "occurs twice"),
    ],
)
def test_bad_graphs(text: str, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message) as caught:
        read(model(text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\x1c\x00\x00\x00TFL3\x14\x00\x20\x00", "a TFLite model, not an ONNX model"),
        (b"PK\x03\x04" + bytes(40), "a ZIP archive, not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"<html><body>404</body></html>", "not an ONNX model"),
        (bytes(range(256)) * 10, "not an ONNX model"),
        (b"\x08", "not an ONNX model"),
        (b"\x08\x08", "not an ONNX model"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(content)
    with pytest.raises(InvalidModelError, match=message) as caught:
        read(path)
    assert "odd.onnx" in str(caught.value) and "\n" not in str(caught.value)


def test_cut_file(tmp_path: Path) -> None:
    weights = np.ones(4000, np.float32)
    data = model("main (float[2] x) => (float[2] y) { y = Add(x, w) }", w=weights).SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in (len(data) - 1, len(data) // 2, 20, 3):
        path.write_bytes(data[:length])
        with pytest.raises(InvalidModelError, match=r"cut\.onnx: not an ONNX model, or truncated or corrupt"):
            read(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="No such file"):
        read(tmp_path / "none.onnx")
    with pytest.raises(InvalidModelError, match="is a folder"):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(InvalidModelError, match="not a regular file"):
        read(tmp_path / "pipe.onnx")


def nested(depth: int) -> onnx.ModelProto:
    """Ifs within Ifs."""
    out = helper.make_tensor_value_info("y", TensorProto.BOOL, [])
    info = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    result = helper.make_model(helper.make_graph([], "g", [info], [out]))
    graph = result.graph
    for _ in range(depth):
        node = graph.node.add(op_type="If", input=["c"], output=["y"])
        other = helper.make_graph([helper.make_node("Identity", ["c"], ["y"])], "other", [], [out])
        node.attribute.append(helper.make_attribute("else_branch", other))
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.output.append(out)
    graph.node.add(op_type="Identity", input=["c"], output=["y"])
    return result


def nested_bytes(depth: int) -> bytes:
    """The same, serialized by hand, with a text in it that is not small."""
    graph = _field(10, b"x" * 2000)
    for _ in range(depth):
        graph = _field(1, _field(4, b"If") + _field(5, _field(1, b"then_branch") + _field(6, graph)))
    return _field(7, graph)


def test_deep_nesting() -> None:
    assert read(nested(20)) and read(nested(20).SerializeToString())
    for source in (nested(400), nested_bytes(32), nested_bytes(1000), nested_bytes(20_000)):
        with pytest.raises(OnnxtflError, match=r"nested too deep|not an ONNX model"):
            read(source)


def test_function_bomb() -> None:
    """Thirty functions that each call the next one twice."""
    text = '<ir_version: 10, opset_import: ["" : 21, "l" : 1]> main (float[2] x) => (float[2] y) { y = l.f0 (x) }\n'
    for i in range(30):
        body = f"b = l.f{i + 1} (a) c = l.f{i + 1} (b)" if i < 29 else "c = Neg (a)"
        text += f'<domain: "l", opset_import: ["" : 21, "l" : 1]> f{i} (a) => (c) {{ {body} }}\n'
    with pytest.raises(InvalidModelError, match="expand to over"):
        read(parser.parse_model(text))


def test_types_of_values_inside_are_what_the_file_declares() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    spec = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]), helper.make_tensor_value_info("y", 1, [2])
    declared = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "g", [spec[0]], [spec[1]], value_info=[declared])
    assert [str(v.type) for n in read(helper.make_model(graph)).nodes for v in n.results] == [
        "tensor<[n]xfloat32>",
        "tensor<2xfloat32>",
    ]
    graph.value_info[0].type.tensor_type.elem_type = 0  # no one holds a file to it
    assert next(read(helper.make_model(graph)).nodes).results[0].type is None


# Memory


def test_weights_of_a_message_are_copied_when_they_are_asked_for() -> None:
    weight = np.arange(6000, dtype=np.float32).reshape(60, 100)
    for tensor in (numpy_helper.from_array(weight, "w"), helper.make_tensor("w", 1, weight.shape, weight.reshape(-1))):
        data = read(with_tensor(tensor)).outputs[0].data
        assert isinstance(data, MessageData)
        np.testing.assert_array_equal(data.numpy(), weight)
        np.testing.assert_array_equal(data.transpose((1, 0)).slab(0, 3, 5), weight.T[3:5])
        assert b"".join(bytes(chunk) for chunk in data.chunks()) == weight.tobytes()


_MEASURE = """
import sys
import onnx, numpy
def peak():
    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM')) / 1024
from onnxtfl.formats.onnx import reader, writer
before = peak()
graph = reader.read(sys.argv[1])
with open(sys.argv[2], 'wb') as out:
    writer.write(graph, out)
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory(tmp_path: Path) -> None:
    """A model of 160 MB, half of it as varints, goes through less than 60 MB."""
    numbers = np.tile(np.arange(-128, 128), 40_000)
    small = TensorProto(name="i", data_type=TensorProto.INT8, dims=[256, 40_000], int32_data=numbers.tolist())
    del numbers
    proto = model("main (float[1, 4096] x) => (float[1, 4096] y) { y = MatMul (x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4096, 4096), np.float32), "w"))
    proto.graph.initializer.append(small)
    proto.graph.output.add().CopyFrom(helper.make_tensor_value_info("i", TensorProto.INT8, [256, 40_000]))
    onnx.save(proto, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 110 << 20
    command = [sys.executable, "-c", _MEASURE, str(tmp_path / "m.onnx"), str(tmp_path / "out.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert float(done.stdout) < 40
    out = io.BytesIO()
    write(read_model(tmp_path / "out.onnx"), out)
    assert out.getbuffer().nbytes == (tmp_path / "out.onnx").stat().st_size
