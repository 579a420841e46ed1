"""Decoders with a position along each of three axes (mRoPE, of models that see images): in a text, all are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxtfl import llm
from onnxtfl.formats import files
from tests.unit.tiny_decoders import decoder, node

pytest.importorskip("ai_edge_litert")


def test_three_rows_of_positions(tmp_path: Path) -> None:
    model = decoder()
    graph = model.graph
    (positions,) = (value for value in graph.input if value.name == "position_ids")
    positions.type.tensor_type.shape.dim.insert(
        0, helper.make_tensor_value_info("", 7, [3]).type.tensor_type.shape.dim[0]
    )
    for k, one in enumerate([n for n in graph.node if "position_ids" in n.input]):
        at = list(one.input).index("position_ids")
        one.input[at] = f"row{k}"
        graph.initializer.append(numpy_helper.from_array(np.array(2 - k), f"index{k}"))
        graph.node.insert(0, node("Gather", ["position_ids", f"index{k}"], f"row{k}", axis=0))
    onnx.save(model, tmp_path / "model.onnx")
    done = llm.convert(tmp_path / "model.onnx", tmp_path / "m.tflite", prefill=[4, 16], context=64, check="require")
    assert done.check is not None and all("the same 32 tokens" in one.note for one in done.check.outputs)
    assert any("along all axes of 'position_ids'" in text for text in done.assumptions)
    signature = next(s for s in files.read(tmp_path / "m.tflite").signatures if s.key == "decode")
    assert tuple(signature.graph.inputs[dict(signature.inputs)["input_pos"]].shape) == (1,)
