"""The TFLite reader: real files as graphs, files that come back through the writer run the same, and bad files."""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated

import onnxtfl
from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.encode import Encoder
from onnxtfl.formats.tflite.reader import read as read_model
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir.data import FileData, TensorData
from onnxtfl.ir.graph import Graph, Node
from onnxtfl.ir.model import Model
from onnxtfl.ir.text import parse_graph
from onnxtfl.ir.types import DType, ResourceType, TensorType
from onnxtfl.runtimes import LITERT, RunError, RunOptions, Worker
from tests.models.tflite_files import samples_of
from tests.unit.tflite_files import changed_file
from tests.unit.tflite_graphs import SAMPLE, TfliteGraph
from tests.unit.tiny_models import tflite_scale

CORPUS = Path(os.environ.get("ONNXTFL_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
OPS = CORPUS / "tflite-ops.zip"
needs_corpus = pytest.mark.skipif(not OPS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")
FILES = sorted(CORPUS.glob("tflite/**/*.tflite"))
RUN_EVERY = 12
"""Running all the files takes minutes; which ones are run does not matter much."""


def op_case(name: str) -> bytes:
    with zipfile.ZipFile(OPS) as archive:
        return archive.read(f"{name}/model.tflite")


def op_cases() -> list[str]:
    if not OPS.exists():
        return []
    with zipfile.ZipFile(OPS) as archive:
        return sorted(name.removesuffix("/model.tflite") for name in archive.namelist() if name.endswith(".tflite"))


def read(source: Any) -> Graph:
    return read_model(source).main


def rewritten(model: bytes | Path) -> bytes:
    out = io.BytesIO()
    write(read_model(model), out)
    return out.getvalue()


def table(name: str, /, **values: Any) -> dict[str, Any]:
    assert set(values) <= set(schema.table(name).by_name)
    return values


def file_of(**model: Any) -> bytes:
    """A file with these values of the Model table."""
    encoder = Encoder()
    encoder.root(schema.table("Model"), {"version": 3, **model}, b"TFL3")
    return bytes(encoder.out)


def minimal(operators: Any = (), outputs: Any = (0,), tensors: Any = None, **model: Any) -> bytes:
    """A file with one subgraph; tensor 0 is its input."""
    tensors = tensors or [table("Tensor", shape=(2,), name="x"), table("Tensor", shape=(2,), name="y")]
    main = table("SubGraph", tensors=tensors, inputs=(0,), outputs=outputs, operators=operators)
    return file_of(
        **{"subgraphs": [main], "buffers": [{}], "operator_codes": [table("OperatorCode", builtin_code="NEG")], **model}
    )


def neg(operand: int, result: int) -> dict[str, Any]:
    return table("Operator", inputs=(operand,), outputs=(result,))


def nodes(graph: Graph) -> list[Node]:
    return list(graph.walk())


@needs_corpus
def test_all_files_of_the_corpus_are_read_and_written() -> None:
    with zipfile.ZipFile(OPS) as archive:
        models: list[tuple[str, bytes | Path]] = [
            (n, archive.read(n)) for n in archive.namelist() if n.endswith(".tflite")
        ]
    failed = []
    for name, model in [*models, *((str(path), path) for path in FILES)]:
        try:
            rewritten(model)
        except OnnxtflError as error:
            failed.append(f"{name}: {error}")
    assert len(models) > 500
    assert len(FILES) > 100
    assert failed == []


@pytest.fixture(scope="module")
def litert() -> Iterator[Worker]:
    with Worker(LITERT.name, LITERT.find_python()) as worker:
        yield worker


@needs_corpus
@pytest.mark.parametrize(
    "name", [*op_cases()[::RUN_EVERY], *(str(path) for path in FILES[::RUN_EVERY])], ids=lambda name: Path(name).stem
)
def test_what_was_read_and_written_runs_the_same(name: str, litert: Worker, tmp_path: Path) -> None:
    model = Path(name).read_bytes() if name.endswith(".tflite") else op_case(name)
    (tmp_path / "a.tflite").write_bytes(model)
    (tmp_path / "b.tflite").write_bytes(rewritten(model))
    inputs = list(samples_of(model).values())
    try:
        before = litert.run(tmp_path / "a.tflite", inputs, RunOptions(time_limit=60))
    except RunError as error:
        pytest.skip(f"LiteRT does not run the file itself: {error}")
    after = litert.run(tmp_path / "b.tflite", inputs, RunOptions(time_limit=60))
    if "RANDOM" in name or "MULTINOMIAL" in name:
        return
    assert len(before) == len(after)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


@needs_corpus
def test_weights_stay_in_the_file() -> None:
    path = max(FILES, key=lambda p: p.stat().st_size)
    graph = read(path)
    weights = [v for n in nodes(graph) for v in n.present_operands if v.data is not None and v.data.nbytes > 2000]
    assert weights
    assert all(isinstance(v.data, FileData) for v in weights)


def test_names_are_those_of_the_signature() -> None:
    graph = read(tflite_scale(names=("a", "b")))
    assert ([v.name for v in graph.inputs], graph.output_names) == (["a"], ["b"])
    graph = read(tflite_scale(signature=False))
    assert ([v.name for v in graph.inputs], graph.output_names) == (["x"], ["y"])


@needs_corpus
def test_options_come_as_attributes() -> None:
    conv = next(
        n
        for n in nodes(read(op_case(next(c for c in op_cases() if c.startswith("CONV_2D__")))))
        if n.op.name == "tfl.CONV_2D"
    )
    assert conv.attributes["padding"] in ("SAME", "VALID")
    assert conv.attributes["fused_activation_function"] in ("NONE", "RELU", "RELU6")
    assert conv.attributes["dilation_h_factor"] == 1
    custom = next(n for n in nodes(read(op_case("CUSTOM__fb_detpp_reg0"))) if n.op.name.startswith("tfl.custom:"))
    assert custom.op.name == "tfl.custom:TFLite_Detection_PostProcess"
    assert b"nms_iou_threshold" in custom.attributes["custom_options"]


@needs_corpus
def test_sparse_weights_become_dense() -> None:
    graph = read(op_case("DENSIFY__fb_block2x2"))
    densify = next(n for n in graph.nodes if n.op.name == "tfl.DENSIFY")
    expected = [[0, 0, 1, 2], [0, 0, 3, 4], [5, 6, 0, 0], [7, 8, 0, 0]]
    np.testing.assert_array_equal(densify.operand(0).numpy(), expected)
    data = densify.operand(0).data
    assert data is not None
    np.testing.assert_array_equal(np.concatenate(list(data.chunks())).view(np.float32).reshape(4, 4), expected)
    np.testing.assert_array_equal(data.slab(1, 2, 4), np.asarray(expected)[:, 2:])


@needs_corpus
def test_control_flow_holds_graphs_and_variables_are_states() -> None:
    graphs = {
        name: read(op_case(name)) for name in op_cases() if name.startswith(("WHILE__", "SVDF__", "VAR_HANDLE__"))
    }
    loops = [n for g in graphs.values() for n in nodes(g) if n.op.name == "tfl.WHILE"]
    assert all(isinstance(n.attributes["body_subgraph_index"], Graph) for n in loops)
    assert all(len(n.attributes["body_subgraph_index"].inputs) == len(n.operands) for n in loops)
    state = next(s for name, g in graphs.items() if name.startswith("SVDF") for s in g.states)
    assert state.input is state.output
    handle = next(n for g in graphs.values() for n in nodes(g) if n.op.name == "tfl.VAR_HANDLE")
    assert isinstance(handle.result.type, ResourceType)


def test_reads_the_least_file() -> None:
    graph = read(minimal([neg(0, 1)], outputs=(1,)))
    assert [n.op.name for n in graph.nodes] == ["tfl.NEG"]
    assert (graph.inputs[0].name, graph.outputs[0].name) == ("x", "y")


def test_absent_operands_unknown_sizes_and_signature_names() -> None:
    tensors = [
        table("Tensor", shape=(1, 2), shape_signature=(-1, 2), name="a:0"),
        table("Tensor", shape=(1, 2), shape_signature=(-1, 2), name="a_0"),
    ]
    signature = table(
        "SignatureDef",
        signature_key="serving_default",
        inputs=[table("TensorMap", name="in", tensor_index=0)],
        outputs=[table("TensorMap", name="p", tensor_index=1), table("TensorMap", name="q", tensor_index=1)],
    )
    operator = table("Operator", inputs=(0, -1), outputs=(1,))
    graph = read(minimal([operator], outputs=(1, 1), tensors=tensors, signature_defs=[signature]))
    (node,) = graph.nodes
    assert node.operands[1] is None
    assert str(graph.inputs[0].type) == "tensor<[in_d0]x2xfloat32>"
    assert graph.inputs[0].name == "in"
    assert graph.inputs[0].origin is not None and graph.inputs[0].origin.tensor == "a:0"
    assert graph.output_names == ["p", "q"]


def test_a_range_without_scale_is_no_quantization() -> None:
    quantization = table("QuantizationParameters", min=(0.0,), max=(6.0,))
    tensors = [table("Tensor", shape=(2,), type=t, name=t, quantization=quantization) for t in ("INT8", "FLOAT32")]
    graph = read(minimal(outputs=(0,), tensors=tensors))
    assert graph.inputs[0].dtype is DType.INT8
    assert graph.inputs[0].tensor_type.quantization is None


def test_the_axis_of_the_scales_of_a_vector() -> None:
    """Converters wrote that of the weights into the bias; kernels do not read it."""
    quantization = table("QuantizationParameters", scale=(0.1, 0.2), zero_point=(0, 0), quantized_dimension=3)
    tensors = [table("Tensor", shape=(2,), type="INT32", name="bias", quantization=quantization)]
    found = read(minimal(outputs=(0,), tensors=tensors)).inputs[0].tensor_type.quantization
    assert found is not None and found.axis == 0 and len(found.scales) == 2


def test_what_the_file_says_beside_its_graphs_is_kept() -> None:
    whole = read_model(minimal([neg(0, 1)], outputs=(1,), description="what it is"))
    whole.metadata.properties["notes"] = b"\x01\x02" * 1000
    out = io.BytesIO()
    write(whole, out)
    again = read_model(out.getvalue())
    notes = again.metadata.properties["notes"]
    assert isinstance(notes, TensorData) and notes.numpy().tobytes() == b"\x01\x02" * 1000
    assert (again.format, again.metadata.description) == ("tflite", "what it is")


def test_every_signature_is_kept() -> None:
    tensors = [table("Tensor", shape=(2,), name="x"), table("Tensor", shape=(2,), name="y")]
    graphs = [
        table("SubGraph", name=f"g{k}", tensors=tensors, inputs=(0,), outputs=(1,), operators=[neg(0, 1)])
        for k in range(2)
    ]
    signatures = [
        table(
            "SignatureDef",
            signature_key=key,
            subgraph_index=k,
            inputs=[table("TensorMap", name=f"in_{key}", tensor_index=0)],
            outputs=[table("TensorMap", name=f"out_{key}", tensor_index=1)],
        )
        for k, key in ((0, "encode"), (1, "decode"), (0, "again"))
    ]
    source = minimal(subgraphs=graphs, signature_defs=signatures)
    for data in (source, rewritten(source)):
        whole = read_model(data)
        assert [(s.key, s.graph.name, s.inputs, s.outputs) for s in whole.signatures] == [
            ("encode", "g0", (("in_encode", 0),), (("out_encode", 0),)),
            ("decode", "g1", (("in_decode", 0),), (("out_decode", 0),)),
            ("again", "g0", (("in_again", 0),), (("out_again", 0),)),
        ]
        assert [g.name for g in whole.graphs()] == ["g0", "g1"]


def calls_itself() -> bytes:
    code = [table("OperatorCode", builtin_code="CALL_ONCE", deprecated_builtin_code=127)]
    options = {"builtin_options_type": schema.options_union("CallOnceOptions")[1]}
    operator = options | {"builtin_options": (schema.table("CallOnceOptions"), {})}
    return minimal([operator], operator_codes=code)


def many_uses() -> bytes:
    """Each subgraph uses the next twice: 2 ** 20 graphs in a few kilobytes."""
    code = [table("OperatorCode", builtin_code="IF", deprecated_builtin_code=118)]
    options = schema.table("IfOptions")

    def subgraph(number: int) -> dict[str, Any]:
        values = {"then_subgraph_index": number + 1, "else_subgraph_index": number + 1}
        operator = {"builtin_options_type": schema.options_union(options.name)[1], "builtin_options": (options, values)}
        return table("SubGraph", operators=[operator] if number < 20 else [])

    return file_of(subgraphs=[subgraph(n) for n in range(21)], operator_codes=code)


def many_references() -> bytes:
    """4001 subgraphs that are all the same one, and in it 4999 operators that are all the same one."""
    main = table("SubGraph", operators=[{"opcode_index": 0}] * 4999)
    content = bytearray(file_of(subgraphs=[*[table("SubGraph")] * 4000, main]))
    for count in (4001, 4999):
        start = content.index(struct.pack("<I", count)) + 4
        last = start + 4 * (count - 1)
        target = last + struct.unpack_from("<I", content, last)[0]
        for place in range(start, last, 4):
            struct.pack_into("<I", content, place, target - place)
    return bytes(content)


def with_data(data: bytes, **tensor: Any) -> bytes:
    tensors = [
        table("Tensor", shape=(2,), name="x"),
        table("Tensor", **{"shape": (2,), "buffer": 1, "name": "w", **tensor}),
    ]
    return minimal(outputs=(1,), tensors=tensors, buffers=[{}, {"data": data}])


def quantized(**parameters: Any) -> bytes:
    quantization = table("QuantizationParameters", **parameters)
    return minimal(tensors=[table("Tensor", shape=(2, 3), type="INT8", name="x", quantization=quantization)])


BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "short": (b"\x1c\0\0", "not a TFLite model"),
    "onnx": (b"\x08\x08\x12\x07pytorch", "probably an ONNX model, not a TFLite model"),
    "zip": (b"PK\x03\x04" + bytes(40), "ZIP archive"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "nothing in it": (b"\x08\0\0\0TFL3", "truncated or corrupt"),
    "no subgraph": (file_of(), "no subgraph"),
    "cut": (minimal([neg(0, 1)], outputs=(1,))[:-40], "truncated or corrupt"),
    "unknown tensor": (minimal(outputs=(7,)), "there is no tensor 7"),
    "negative tensor": (minimal(outputs=(-1,)), "there is no tensor -1"),
    "unknown op code": (minimal([{"opcode_index": 3}]), "there is no op code 3"),
    "unknown buffer": (minimal(outputs=(1,), tensors=[{"shape": (2,)}, {"shape": (2,), "buffer": 9}]), "no buffer 9"),
    "unknown type": (minimal(tensors=[table("Tensor", shape=(2,), type=99, name="x")]), "unknown element type 99"),
    "negative size": (minimal(tensors=[table("Tensor", shape=(-7,), name="x")]), "size -7 of axis 0"),
    "out of order": (minimal([neg(1, 0)]), "produces the operand of NEG"),
    "written twice": (minimal([neg(0, 1), neg(0, 1)]), "written twice"),
    "input twice": (minimal(subgraphs=[{"tensors": [{"shape": (2,)}], "inputs": (0, 0)}]), "a tensor is two inputs"),
    "references to the same": (many_references(), "the same bytes too often"),
    "recursive": (calls_itself(), "is recursive"),
    "too few numbers": (with_data(b"1234"), "4 bytes for float32 elements of shape \\[2\\]"),
    "absurd shape": (
        with_data(b"12345678", shape=(1 << 30, 1 << 30, 1 << 30)),
        "8 bytes for float32",
    ),
    "malformed strings": (with_data(b"\xff\xff\xff\x7f", type="STRING"), "malformed string tensor"),
    "too few strings": (with_data(struct.pack("<iii", 1, 12, 12), type="STRING"), "1 strings for shape"),
    "scales for no axis": (
        quantized(scale=(1.0, 2.0), zero_point=(0, 0)[:2], quantized_dimension=1),
        "2 scales along axis 1",
    ),
    "zero points": (quantized(scale=(1.0, 2.0), zero_point=(0, 0, 0)), "2 scales but 3 zero points"),
    "offset outside": (minimal(outputs=(1,), buffers=[{"offset": 1 << 40, "size": 8}]), "truncated or corrupt"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_errors_of_one_line(name: str, tmp_path: Path) -> None:
    content, message = BAD_FILES[name]
    path = tmp_path / "bad.tflite"
    path.write_bytes(content)
    with pytest.raises(InvalidModelError, match=message) as caught:
        read(path)
    assert "bad.tflite" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (many_uses, "too many uses"),
        (lambda: minimal(operator_codes=[{"builtin_code": 5000}]), "unknown builtin op 5000"),
    ],
)
def test_what_the_graph_cannot_hold(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        read(make())


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(InvalidModelError, match="cannot be read"):
        read(tmp_path / "none.tflite")


def test_elements_in_the_file_have_no_open_sizes() -> None:
    class Opened(TfliteGraph):
        def _tensor(self, name: str, buffer: int, kind: tuple[str, int] | None) -> dict[str, Any]:
            found = super()._tensor(name, buffer, kind)
            return found | {"shape_signature": [-1, 3, 4]} if name in self.constants else found

    g = Opened(0)
    assert g.op("ADD", [g.given(SAMPLE), g.constant(SAMPLE)])
    onnxtfl.tflite_to_onnx(g.model())


@pytest.mark.parametrize("described", [True, False], ids=["newer", "older"])
def test_inputs_of_a_file_without_a_known_rank(described: bool) -> None:
    """A newer converter flags the known ranks, and files say that it converted them; the input of an older one is a
    scalar.
    """
    graph = parse_graph("graph main(%x: tensor<*xfloat32>) -> (%y) {\n %y = tfl.NEG@1(%x) : tensor<*xfloat32>\n}")
    out = io.BytesIO()
    write(Model(graph, "tflite"), out)

    def describe(model: Any) -> None:
        made = schema_py_generated.MetadataT()
        made.name, made.buffer = "CONVERSION_METADATA", 0
        model.metadata = [made] if described else []

    found = read(changed_file(out.getvalue(), describe)).inputs[0].type
    assert isinstance(found, TensorType) and (found.rank is None) is described
