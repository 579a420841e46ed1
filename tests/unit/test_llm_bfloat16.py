"""Decoders that round scores of the places of a cache to bfloat16."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from onnxtfl import llm
from tests.unit.tiny_decoders import decoder, node

pytest.importorskip("ai_edge_litert")


def test_rounded_scores(tmp_path: Path) -> None:
    model = decoder()
    nodes = model.graph.node
    at = next(k for k, one in enumerate(nodes) if one.output[0] == "scaled")
    nodes[at + 1].input[0] = "rounded"
    nodes.insert(at + 1, node("Cast", ["scaled"], "short", to=TensorProto.BFLOAT16))
    nodes.insert(at + 2, node("Cast", ["short"], "rounded", to=TensorProto.FLOAT))
    onnx.save(model, tmp_path / "model.onnx")
    done = llm.convert(tmp_path / "model.onnx", tmp_path / "m.tflite", prefill=[4, 16], context=64, check="require")
    assert done.check is not None and all("the same 32 tokens" in one.note for one in done.check.outputs)
