"""Encoder-decoders whose encoder computes the keys and values of its states, as the generator writes Whisper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from onnxtfl import check, llm
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats import files
from tests.unit.test_llm_encoder_decoders import (
    CACHES,
    CONTEXT,
    CROSS,
    LOGITS,
    OPSETS,
    TOKENS,
    WEIGHTS,
    WIDTH,
    _input,
    _nodes,
    _present,
    _random,
)

pytest.importorskip("ai_edge_litert")
OWN = [f"past_{kind}_{side}_0" for side in ("self", "cross") for kind in ("key", "value")]
NAMES = dict(zip((*CACHES, *CROSS), OWN, strict=True))
NAMES |= {_present(name): new.replace("past", "present") for name, new in NAMES.items()}


def _save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> None:
    graph = helper.make_graph(nodes, "g", inputs, outputs, WEIGHTS)
    onnx.save(helper.make_model(graph, opset_imports=OPSETS), path)


def _values(names: list[str], size: str) -> list[Any]:
    return [_input(NAMES[name], ["batch", 1, size, WIDTH]) for name in names]


def _write(folder: Path) -> Path:
    nodes = [helper.make_node("Gather", ["words", "input_ids"], ["hidden_states"])]
    for part, name in zip("kv", CROSS, strict=True):
        nodes.append(helper.make_node("MatMul", ["hidden_states", f"u{part}"], [f"c{part}"]))
        nodes.append(helper.make_node("Unsqueeze", [f"c{part}", "one"], [NAMES[_present(name)]]))
    crossed = _values(list(map(_present, CROSS)), "read")
    states = _input("hidden_states", ["batch", "read", WIDTH])
    _save(folder / "encoder.onnx", nodes, [TOKENS], [states, *crossed])
    decoder = _nodes(False)
    for node in decoder:
        for side in (node.input, node.output):
            side[:] = [NAMES.get(name, name) for name in side]
    inputs = [TOKENS, *_values(CACHES, "past"), *_values(CROSS, "read")]
    presents = _values(list(map(_present, CACHES)), "past + tokens")
    _save(folder / "decoder.onnx", decoder, inputs, [LOGITS, *presents])
    return folder / "decoder.onnx"


def test_an_encoder_with_keys_and_values(tmp_path: Path) -> None:
    path, result = _write(tmp_path), tmp_path / "m.tflite"
    done = llm.convert(path, result, context=CONTEXT, check="require")
    assert done.check is not None and all("the same 11 tokens" in one.note for one in done.check.outputs)
    outputs = {s.key: [name for name, _ in s.outputs] for s in files.read(result).signatures}
    assert outputs["encode"] == ["cross_kv_cache_k_0", "cross_kv_cache_v_0"]
    assert outputs["prefill"] == outputs["decode"] == ["logits", "kv_cache_k_0", "kv_cache_v_0"]


@pytest.mark.parametrize("part", ["encoder", "decoder"])
def test_the_check_finds_other_weights(part: str, tmp_path: Path) -> None:
    path, result = _write(tmp_path), tmp_path / "m.tflite"
    llm.convert(path, result, context=CONTEXT, check=False)
    model = onnx.load(tmp_path / f"{part}.onnx")
    for weight in model.graph.initializer:
        if weight.name in ("words", "wo"):
            weight.raw_data = _random(f"another {weight.name}", *weight.dims).raw_data
    onnx.save(model, tmp_path / f"{part}.onnx")
    assert check(path, result).status == "failed"


def test_without_its_encoder(tmp_path: Path) -> None:
    path = _write(tmp_path)
    (tmp_path / "encoder.onnx").unlink()
    with pytest.raises(UnsupportedError, match="it has other inputs: past_key_cross_0"):
        llm.convert(path, tmp_path / "m.tflite", context=CONTEXT)
