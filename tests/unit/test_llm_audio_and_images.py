"""Encoder-decoders that read audio or images: sizes of their inputs, and masks that are longer than the states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtfl import llm
from onnxtfl.errors import UsageError
from onnxtfl.formats import files
from tests.unit.test_llm_encoder_decoders import (
    CROSSED,
    CROSSED_OUT,
    LOGITS,
    OPSETS,
    PASTS,
    PRESENTS,
    STATES,
    TOKENS,
    WEIGHTS,
    WIDTH,
    _input,
    _nodes,
    _random,
)  # fmt: skip
from tests.unit.tiny_decoders import write_decoder

pytest.importorskip("ai_edge_litert")
CONTEXT = 12
MASK = _input("encoder_attention_mask", ["batch", "read"], TensorProto.INT64)


def _numbers(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.int64), name)


EXTRA = [
    _random("near", WIDTH, WIDTH, 3), _random("far", WIDTH, WIDTH, 3), _random("shift", WIDTH),
    _random("patch", WIDTH, 3, 2, 2), _numbers("end", 1 << 30), _numbers("four", 4), _numbers("axes", 1, 2),
    _numbers("rows", 1, WIDTH, -1), numpy_helper.from_array(np.float32(1e4), "large"),
    numpy_helper.from_array(np.float32(1), "unit"),
]  # fmt: skip
node = helper.make_node


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> None:
    graph = helper.make_graph(nodes, "g", inputs, outputs, [*WEIGHTS, *EXTRA])
    onnx.save(helper.make_model(graph, opset_imports=OPSETS), path)


def _masked(nodes: list[Any]) -> list[Any]:
    """Hide the states of which each fourth element of a mask is 0."""
    at = next(k for k, n in enumerate(nodes) if list(n.input) == ["cs"])
    nodes[at].input[0] = "cs_masked"
    nodes[at:at] = [
        node("Slice", ["encoder_attention_mask", "zero", "end", "one", "four"], ["short"]),
        node("Cast", ["short"], ["real"], to=TensorProto.FLOAT), node("Sub", ["real", "unit"], ["hidden_"]),
        node("Mul", ["hidden_", "large"], ["penalty"]), node("Unsqueeze", ["penalty", "axes"], ["wide"]),
        node("Add", ["cs", "wide"], ["cs_masked"]),
    ]  # fmt: skip
    return nodes


def _audio(folder: Path, before: int = 1) -> Path:
    """Two convolutions of stride 2, of which the second reads what the first makes of padding."""
    features = _input("input_features", ["batch", "read", WIDTH])
    mask = _input("attention_mask", ["batch", "read"], TensorProto.INT64)
    strided = {"strides": [2], "pads": [before, 1]}
    nodes = [
        node("Transpose", ["input_features"], ["t"], perm=[0, 2, 1]),
        node("Conv", ["t", "near", "shift"], ["c"], **strided), node("Conv", ["c", "far", "shift"], ["d"], **strided),
        node("Transpose", ["d"], ["last_hidden_state"], perm=[0, 2, 1]),
    ]  # fmt: skip
    states = _input("last_hidden_state", ["batch", "shorter", WIDTH])
    _save(folder / "encoder_model.onnx", nodes, [features, mask], [states])
    first = [TOKENS, STATES, MASK]
    _save(folder / "decoder_model.onnx", _masked(_nodes(True)), first, [LOGITS, *PRESENTS, *CROSSED_OUT])
    later = [TOKENS, MASK, *PASTS, *CROSSED]
    _save(folder / "decoder_with_past_model.onnx", _masked(_nodes(False)), later, [LOGITS, *PRESENTS])
    return folder / "decoder_model.onnx"


def _images(folder: Path) -> Path:
    pixels = _input("pixel_values", ["batch", "channels", "height", "width"])
    nodes = [
        node("Conv", ["pixel_values", "patch"], ["c"], strides=[2, 2]), node("Reshape", ["c", "rows"], ["flat"]),
        node("Transpose", ["flat"], ["last_hidden_state"], perm=[0, 2, 1]),
    ]  # fmt: skip
    states = _input("last_hidden_state", ["batch", "places", WIDTH])
    _save(folder / "encoder_model.onnx", nodes, [pixels], [states])
    _save(folder / "decoder_model.onnx", _nodes(True), [TOKENS, STATES], [LOGITS, *PRESENTS, *CROSSED_OUT])
    _save(folder / "decoder_with_past_model.onnx", _nodes(False), [TOKENS, *PASTS, *CROSSED], [LOGITS, *PRESENTS])
    return folder / "decoder_model.onnx"


def _sizes(path: Path, key: str) -> dict[str, tuple[int, ...]]:
    signature = next(s for s in files.read(path).signatures if s.key == key)
    return {name: tuple(signature.graph.inputs[index].shape) for name, index in signature.inputs}


@pytest.mark.parametrize("read", [None, 20])
def test_a_mask_is_as_long_as_the_encoder_reads(read: int | None, tmp_path: Path) -> None:
    shapes = None if read is None else {"input_features": (1, read, WIDTH), "attention_mask": (1, read)}
    result, places = tmp_path / "m.tflite", read or CONTEXT
    done = llm.convert(_audio(tmp_path), result, context=CONTEXT, input_shapes=shapes, check="require")
    assert _sizes(result, "encode") == {"input_features": (1, places, WIDTH), "attention_mask": (1, places)}
    assert _sizes(result, "decode")["encoder_attention_mask"] == (1, places)
    assert done.check is not None
    notes = {check.name: check.note for check in done.check.outputs}
    whole = [name for name, note in notes.items() if "reads what its mask hides" not in note]
    assert len(notes) == 3 and len(whole) == 1 and whole[0].startswith(f"logits after {places} ")


def test_images_have_the_size_that_the_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"encoder": {"num_channels": 3, "image_size": [6, 4]}}))
    llm.convert(_images(tmp_path), tmp_path / "m.tflite", context=CONTEXT, check="require")
    assert _sizes(tmp_path / "m.tflite", "encode") == {"pixel_values": (1, 3, 6, 4)}


def test_sizes_of_other_inputs_are_refused(tmp_path: Path) -> None:
    path, result = _images(tmp_path), tmp_path / "m.tflite"
    with pytest.raises(UsageError, match="the inputs of the encoder are pixel_values, with a batch of 1"):
        llm.convert(path, result, context=CONTEXT, input_shapes={"pixels": (1, 3, 4, 4)})
    with pytest.raises(UsageError, match="the inputs of the encoder are pixel_values, with a batch of 1"):
        llm.convert(path, result, context=CONTEXT, input_shapes={"pixel_values": (2, 3, 4, 4)})
    assert not result.exists()


def test_a_decoder_has_no_such_sizes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the sizes of a decoder are context and prefill"):
        llm.convert(write_decoder(tmp_path), tmp_path / "m.tflite", input_shapes={"input_ids": (1, 4)})


def test_a_source_that_does_not_run_for_some_lengths_is_checked_for_others(tmp_path: Path) -> None:
    path = _audio(tmp_path, before=0)  # a window of 3 does not fit into one place
    done = llm.convert(path, tmp_path / "m.tflite", context=CONTEXT, check="auto")
    assert done.check is not None
    assert done.check.status == "passed"
    assert done.check.notes[0].startswith("after 1 encoded token, the first model does not run: onnxruntime: ")
