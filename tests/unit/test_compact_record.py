"""The record of a conversion in the metadata of its result."""

import onnx
import pytest
from onnx import parser

import onnxtfl
from onnxtfl.formats import files
from onnxtfl.ir.compact_record import CompactRecord, decode, tensor_names
from onnxtfl.ir.metadata import RECORD, content_of
from onnxtfl.ir.record import TensorEntry
from tests.unit.test_record import cnn


def record_in(content: bytes) -> CompactRecord:
    return decode(content_of(files.read(content).metadata.properties[RECORD]))


def ranks(content: bytes | onnx.ModelProto) -> dict[str, int | None]:
    main = files.read(content).main
    values = [*main.inputs, *(r for node in main.nodes for r in node.results)]
    return {v.name or "": getattr(v.type, "rank", None) for v in values}


def test_the_record_in_the_file_is_that_of_the_conversion() -> None:
    model = cnn()
    done = onnxtfl.onnx_to_tflite(model, check=False)
    assert done.data is not None and done.record is not None
    found = record_in(done.data).entries(ranks(model), ranks(done.data))
    constants = {"w", "b"}
    expected = [TensorEntry(t.source, t.target, t.permutation, t.shape) for t in done.record.tensors]
    assert set(found) == {entry for entry in expected if entry.source not in constants}


def test_the_record_of_a_small_model_is_small() -> None:
    with_record, without = (onnxtfl.onnx_to_tflite(cnn(), check=False, record=on) for on in (True, False))
    assert with_record.data is not None and without.data is not None
    assert RECORD not in files.read(without.data).metadata.properties
    assert len(with_record.data) - len(without.data) < 300


def test_a_model_converted_back_has_the_record_of_the_second_conversion() -> None:
    there = onnxtfl.onnx_to_tflite(cnn(), check=False).data
    assert there is not None
    back = onnxtfl.tflite_to_onnx(there, check=False)
    assert back.data is not None and back.record is not None
    record = record_in(back.data)
    assert record.source == record_in(onnxtfl.tflite_to_onnx(there, check=False, quantized="float").data or b"").source
    found = record.entries(ranks(there), ranks(back.data))
    assert {e.target for e in found} <= set(tensor_names(files.read(back.data).main))
    plain = onnxtfl.tflite_to_onnx(there, check=False, record=False).data
    assert plain is not None and RECORD not in files.read(plain).metadata.properties


def test_a_name_that_means_another_tensor_is_no_entry() -> None:
    """The transposed input has the name of a source tensor that is gone."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    main (float[2, 3] x) => (float[3, 2] y) { transpose = Neg (x) t = Transpose (transpose) y = Exp (t) }"""
    model = parser.parse_model(text)
    done = onnxtfl.onnx_to_tflite(model, check=False)
    assert done.data is not None and done.record is not None
    found = record_in(done.data).entries(ranks(model), ranks(done.data))
    assert {(e.source, e.target) for e in found} == {(t.source, t.target) for t in done.record.tensors}


@pytest.mark.parametrize("data", [b"", b"x", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_other_data_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError, match="not the record of a conversion"):
        decode(data)
