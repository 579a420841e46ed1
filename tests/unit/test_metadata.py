"""Metadata of a model survive a conversion: exactly, there and back, and such that tools of each format read them."""

from __future__ import annotations

import io
import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxtfl
from onnxtfl.errors import UsageError
from onnxtfl.formats import archive, metadata
from onnxtfl.formats.onnx.reader import read as read_onnx
from onnxtfl.formats.tflite import tflite_metadata
from onnxtfl.formats.tflite.reader import overwrite_entries
from onnxtfl.formats.tflite.reader import read as read_tflite
from onnxtfl.formats.tflite.writer import write as write_tflite
from onnxtfl.ir.metadata import TfliteMetadata, as_text, content_of, from_text
from tests.unit.tiny_models import onnx_scale, tflite_scale

LABELS = "cat\ndog\nbird\n"
CONTENT = {
    "name": "Pets",
    "author": "someone",
    "subgraph_metadata": [
        {
            "input_tensor_metadata": [
                {
                    "name": "image",
                    "description": "A photo.",
                    "process_units": [
                        {
                            "options_type": 1,
                            "options": (
                                tflite_metadata.schema.table("NormalizationOptions"),
                                {"mean": (127.5,), "std": (0.1,)},
                            ),
                        }
                    ],
                }
            ],
            "output_tensor_metadata": [
                {
                    "name": "probability",
                    "description": "One for each pet.",
                    "associated_files": [{"name": "labels.txt", "type": "TENSOR_AXIS_LABELS"}],
                }
            ],
        }
    ],
}


def documented() -> onnx.ModelProto:
    """A model with all the documentation that ONNX has a field for."""
    model = onnx_scale()
    model.doc_string, model.graph.doc_string = "Doubles.\nNothing else – ever.", "the graph"
    model.producer_name, model.producer_version = "someone", "1.2"
    model.domain, model.model_version = "org.example", 7
    model.graph.input[0].doc_string, model.graph.output[0].doc_string = "what comes in", "what goes out"
    model.graph.node[0].doc_string = "line 3"
    for part in (model.graph, model.graph.input[0], model.graph.node[0]):  # since IR version 10
        part.metadata_props.add(key="from", value=type(part).__name__)
    for key, value in {"names": "{0: 'cat'}", "empty": "", "stride": "32", "data": as_text(b"\0\xff")}.items():
        model.metadata_props.add(key=key, value=value)
    return model


def described(name: str = "labels.txt", content: bytes = LABELS.encode()) -> bytes:
    """A .tflite file with TFLite Metadata and an associated file."""
    model = read_tflite(tflite_scale())
    model.metadata.tflite = TfliteMetadata(tflite_metadata.encode(CONTENT))
    model.metadata.properties |= {"min_runtime_version": b"1.5.0\0", "notes": b"keep", "blob": b"\0\1\xff"}
    out = io.BytesIO()
    write_tflite(model, out)
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def to_tflite(model: onnx.ModelProto | bytes, **options: Any) -> bytes:
    return onnxtfl.onnx_to_tflite(model, check=False, record=False, **options).data or b""


def to_onnx(model: bytes, **options: Any) -> onnx.ModelProto:
    return onnx.load_from_string(onnxtfl.tflite_to_onnx(model, check=False, record=False, **options).data)


def properties(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def same(one: onnx.ModelProto, other: onnx.ModelProto) -> bool:
    """Whether two models say the same."""
    a, b = (replace(read_onnx(model).metadata, node_descriptions={}) for model in (one, other))
    a.producer, b.producer = replace(a.producer, ir_version=0), replace(b.producer, ir_version=0)
    return a == b


def test_what_an_onnx_model_says_is_the_same_after_two_conversions() -> None:
    source = documented()
    again = to_onnx(to_tflite(source))
    assert same(source, again)
    assert (again.producer_name, again.producer_version, again.domain) == ("someone", "1.2", "org.example")
    assert again.graph.node[0].doc_string == "line 3"
    parts = again.graph, again.graph.input[0], again.graph.node[0]
    found = [[entry.value for entry in part.metadata_props] for part in parts]
    assert found == [["GraphProto"], ["ValueInfoProto"], ["NodeProto"]]
    onnx.checker.check_model(again)


def test_tflite_tools_find_the_description_of_the_model_and_of_its_tensors() -> None:
    model = read_tflite(to_tflite(documented()))
    assert model.metadata.description.startswith("Doubles.")
    assert model.metadata.descriptions == {"x": "what comes in", "y": "what goes out"}
    from ai_edge_litert import schema_py_generated as schema

    raw = schema.ModelT.InitFromObj(schema.Model.GetRootAs(to_tflite(documented()), 0))
    names = {entry.name.decode(): bytes(raw.buffers[entry.buffer].data) for entry in raw.metadata}
    assert names["stride"] == b"32" and names["data"] == b"\0\xff"
    (graph,) = tflite_metadata.decode(names["TFLITE_METADATA"])["subgraph_metadata"]
    assert graph["input_tensor_metadata"][0]["description"] == "what comes in"


def test_a_model_that_says_nothing_gets_no_metadata() -> None:
    model = read_tflite(to_tflite(onnx_scale()))
    assert not {"TFLITE_METADATA", "onnxtfl.onnx"} & set(model.metadata.properties)
    assert model.metadata.tflite is None and not model.metadata.description


def test_tflite_metadata_and_its_files_are_the_same_bytes_after_two_conversions() -> None:
    source = described()
    again = to_tflite(to_onnx(source).SerializeToString())
    before, after = (read_tflite(content).metadata for content in (source, again))
    assert after.tflite == before.tflite and after.tflite.content == tflite_metadata.encode(CONTENT)
    assert after.description == before.description == "tiny"
    assert {key: content_of(value) for key, value in after.properties.items()} == {
        "notes": b"keep",
        "blob": b"\0\1\xff",
        "min_runtime_version": b"1.5.0".ljust(16, b"\0"),
    }
    with zipfile.ZipFile(io.BytesIO(again)) as opened:
        assert opened.testzip() is None and opened.read("labels.txt") == LABELS.encode()
        assert again[opened.infolist()[0].header_offset :][:4] == b"PK\x03\x04"


def test_in_onnx_people_can_read_it() -> None:
    model = to_onnx(described())
    found = json.loads(properties(model)["tflite.metadata"])
    assert found["inputs"][0]["normalization"] == {"mean": [127.5], "std": [0.1]}
    assert found["outputs"][0]["labels"] == ["cat", "dog", "bird"]
    assert (found["name"], found["author"]) == ("Pets", "someone")
    assert model.graph.input[0].doc_string == "A photo." and properties(model)["notes"] == "keep"


def test_what_describes_the_file_and_not_the_model_is_left_out() -> None:
    assert "min_runtime_version" not in properties(to_onnx(described()))


@pytest.mark.parametrize(("op", "lowest"), [("Relu", "1.5.0"), ("Gelu", "2.9.0"), ("Sign", "2.11.0")])
def test_a_file_says_which_runtime_has_its_ops(op: str, lowest: str) -> None:
    """As TensorFlow's converter writes it, for `FlatBufferModel::GetMinimumRuntime`: 16 bytes, zeros after the text."""
    body = f"z = {op} (x)  y = Add (z, z)"
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 20]> g (float[2,3] x) => (float[2,3] y) {{ {body} }}'
    )
    found = read_tflite(to_tflite(model)).metadata.properties["min_runtime_version"]
    assert content_of(found) == lowest.encode().ljust(16, b"\0")
    assert not properties(to_onnx(to_tflite(model)))


def test_an_entry_is_overwritten_in_place(tmp_path: Path) -> None:
    """So does `--quantize`, after which ops have other versions."""
    path = tmp_path / "m.tflite"
    path.write_bytes(to_tflite(onnx_scale(), metadata={"notes": "four"}))
    before = path.read_bytes()
    overwrite_entries(path, {"notes": b"five", "absent": b"x", "min_runtime_version": b"too short"})
    assert path.read_bytes() == before.replace(b"four", b"five")


def test_an_edited_description_replaces_that_in_tflite_metadata() -> None:
    model = to_onnx(described())
    model.graph.input[0].doc_string = "Another photo."
    after = read_tflite(to_tflite(model)).metadata
    assert after.descriptions == {"x": "Another photo.", "y": "One for each pet."}
    assert tflite_metadata.decode(after.tflite.content)["name"] == "Pets"


def test_descriptions_follow_their_tensors() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,3,4,4] p, float[1,3,4,4] q) => (float[1,3,4,4] r, '
        "float[1,3,4,4] s) { r = Relu (p)  s = Neg (q) }"
    )
    for info in (*model.graph.input, *model.graph.output):
        info.doc_string = f"this is {info.name}"
    full = to_onnx(to_tflite(model, io_layout="channels-last"))
    assert [i.doc_string for i in full.graph.input] == ["this is p", "this is q"]
    part = to_onnx(to_tflite(model), inputs=["q"], outputs=["s"])
    assert [i.doc_string for i in (*part.graph.input, *part.graph.output)] == ["this is q", "this is s"]
    known = tflite_metadata.made("", {"inputs": ["p", "q"], "outputs": []}, {"p": "P", "q": "Q"}) or b""
    cut = tflite_metadata.aligned(known, {"inputs": ["p", "q"]}, {"inputs": ["q", "new"]}, {"q": "Q"})
    assert tflite_metadata.descriptions_of(tflite_metadata.decode(cut), {"inputs": ["q", "new"]}) == {"q": "Q"}


def test_properties_can_be_added(tmp_path: Path) -> None:
    given = {"author": "me", "names": "a=b"}
    assert properties(to_onnx(to_tflite(documented(), metadata=given), metadata={"stride": "8"})) == {
        **properties(documented()),
        **given,
        "stride": "8",
    }
    for bad in ({"": "x"}, {"TFLITE_METADATA": "x"}, {"k": 1}, {"k": "\udcff"}):
        with pytest.raises(UsageError):
            to_tflite(documented(), metadata=bad)


def test_an_archive_is_never_decompressed_beyond_a_limit() -> None:
    bomb = described("bomb.txt", b"\n" * (50 << 20))
    assert len(bomb) < 1 << 20
    model = to_onnx(bomb)
    assert "bomb.txt" not in properties(model)["tflite.metadata"]
    found = archive.find_archive(archive.SourceBytes(bomb))
    lying = bytearray(found.directory)
    lying[24:28] = (5).to_bytes(4, "little")  # the size that the directory states
    assert archive.texts(replace(found, directory=bytes(lying))) == {}
    with zipfile.ZipFile(io.BytesIO(to_tflite(model))) as opened:
        assert opened.infolist()[0].file_size == 50 << 20


def test_damaged_metadata_do_not_prevent_a_conversion() -> None:
    source, generator = described(), random.Random(0)
    start = archive.find_archive(archive.SourceBytes(source)).nbytes
    for _ in range(25):
        content = bytearray(source)
        content[generator.randrange(len(content) - start, len(content))] ^= generator.randrange(1, 256)
        to_tflite(to_onnx(bytes(content)).SerializeToString())
        damaged = bytearray(tflite_metadata.encode(CONTENT))
        damaged[generator.randrange(8, len(damaged))] ^= generator.randrange(1, 256)
        proto = onnx_scale()
        proto.metadata_props.add(key="TFLITE_METADATA", value=as_text(bytes(damaged)))
        proto.metadata_props.add(key="tflite.metadata", value='{"inputs": 3}')
        to_onnx(to_tflite(proto))


def test_an_archive_after_the_weights_of_a_large_file() -> None:
    model, out = read_tflite(described()), io.BytesIO()
    write_tflite(model, out, limit=0)
    with zipfile.ZipFile(out) as opened:
        assert opened.read("labels.txt") == LABELS.encode()
    again = read_tflite(out.getvalue()).metadata
    assert again.tflite is not None and again.tflite.content == tflite_metadata.encode(CONTENT)


def test_what_is_too_large_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metadata, "MOST_IN_ONNX", 4)
    report = onnxtfl.tflite_to_onnx(described(), check=False).report
    assert [line.partition(" (")[0] for line in report.dropped_metadata] == ["the associated files"]
    assert "left out" in report.table(verbose=True) and "left out" not in str(report)
    proto = documented()
    proto.graph.node[0].doc_string = "trace\n" * 20_000
    for part in (proto.graph.node[0], proto.graph.input[0]):
        part.metadata_props.add(key="trace", value="line\n" * 20_000)
    conversion = onnxtfl.onnx_to_tflite(proto, check=False)
    report = conversion.report
    onnxtfl.write_report(conversion, page := tmp_path / "report.html")
    assert "left out: the metadata_props of 1 nodes, too large" in page.read_text()
    assert report.dropped_metadata == (
        "the documentation of 1 nodes",
        "the metadata_props of 1 nodes",
        "the metadata_props of 1 tensors",
    )
    assert report.table(verbose=True).count("too large") == 3


@pytest.mark.parametrize("content", [b"", b"text", b"\0", b"\xff\xfe", as_text(b"\0").encode(), b"data:;base64,AA=="])
def test_bytes_are_the_same_after_they_were_text(content: bytes) -> None:
    text = as_text(content)
    found = from_text(text)
    assert (found.encode() if isinstance(found, str) else found) == content
    assert as_text(found) == text


def test_unknown_text_stays_as_it_is() -> None:
    text = "data:application/octet-stream;base64,?"
    assert from_text(text) == text and as_text(text) == text


def test_inspect_shows_descriptions_normalization_and_files(tmp_path: Path) -> None:
    path = tmp_path / "pets.tflite"
    path.write_bytes(described())
    lines = {line.split()[0]: line for line in onnxtfl.inspect(path).table().splitlines()}
    assert lines["inputs"].endswith("A photo.") and lines["outputs"].endswith("One for each pet.")
    assert "x  mean 127.5, deviation 0.1" in lines["normalize"] and "labels.txt" in lines["files"]
