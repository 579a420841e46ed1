"""Decoders with keys and values of a layer in one cache [2, batch, heads, places, size], as older tools write GPT-2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtfl import llm
from onnxtfl.errors import UsageError
from tests.unit.tiny_decoders import HEADS, KEY, VALUE, WIDTH, node, write_decoder

pytest.importorskip("ai_edge_litert")


def _stacked(folder: Path) -> Path:
    path = write_decoder(folder)
    model = onnx.load(path)
    graph, sizes = model.graph, ["batch", HEADS, "past", WIDTH // HEADS]
    past = helper.make_tensor_value_info("past_0", TensorProto.FLOAT, [2, *sizes])
    sizes[2] = "total"
    present = helper.make_tensor_value_info("present_0", TensorProto.FLOAT, [2, *sizes])
    inputs, outputs = [v for v in graph.input if v.name not in (KEY, VALUE)], [graph.output[0], present]
    del graph.input[:], graph.output[:]
    graph.input.extend([*inputs, past])
    graph.output.extend(outputs)
    graph.initializer.append(numpy_helper.from_array(np.array([0]), "axis"))
    graph.node.insert(0, node("Gather", ["past_0", "zero"], KEY, axis=0))
    graph.node.insert(0, node("Gather", ["past_0", "one"], VALUE, axis=0))
    parts = [node("Unsqueeze", [f"present.0.{kind}", "axis"], kind) for kind in ("key", "value")]
    graph.node.extend([*parts, node("Concat", ["key", "value"], "present_0", axis=0)])
    onnx.save(model, path)
    return path


def test_keys_and_values_in_one_cache(tmp_path: Path) -> None:
    how = {"prefill": [4, 16], "context": 64, "check": "require"}
    done = llm.convert(_stacked(tmp_path), tmp_path / "m.tflite", **how)
    assert done.caches == (("kv_cache_kv_0", "float32", (2, 1, HEADS, 64, WIDTH // HEADS)),)
    assert done.check is not None and all("the same 32 tokens" in one.note for one in done.check.outputs)


def test_the_engine_has_no_such_caches(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"this decoder has both in one; name the result \*\.tflite"):
        llm.convert(_stacked(tmp_path), tmp_path / "m.litertlm")
