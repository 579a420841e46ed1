"""Encoder-decoders as one .tflite with the signatures encode, prefill and decode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxtfl import check, llm
from onnxtfl.errors import UnsupportedError, UsageError

pytest.importorskip("ai_edge_litert")
WIDTH, WORDS, CONTEXT = 8, 16, 12
OPSETS = [helper.make_opsetid("", 17)]
Node = onnx.NodeProto


def _random(name: str, *shape: int) -> onnx.TensorProto:
    rng = np.random.default_rng(sum(map(ord, name)))
    return numpy_helper.from_array(rng.normal(0, 0.5, shape).astype(np.float32), name)


WEIGHTS = [_random("words", WORDS, WIDTH), _random("wo", WIDTH, WORDS)]
WEIGHTS += [_random(name, WIDTH, WIDTH) for name in ("wq", "wk", "wv", "uk", "uv")]
WEIGHTS += [
    numpy_helper.from_array(np.asarray(value, np.int64), name)
    for name, value in (("one", [1]), ("zero", [0]), ("axis", 1))
]
WEIGHTS += [numpy_helper.from_array(np.float32([-1e4]).reshape(1, 1), "hidden")]


def _input(name: str, shape: list[str | int], type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, shape)


TOKENS = _input("input_ids", ["batch", "tokens"], TensorProto.INT64)
STATES = _input("encoder_hidden_states", ["batch", "read", WIDTH])
CACHES = ["past_key_values.0.decoder.key", "past_key_values.0.decoder.value"]
CROSS = ["past_key_values.0.encoder.key", "past_key_values.0.encoder.value"]
PASTS = [_input(name, ["batch", 1, "past", WIDTH]) for name in CACHES]
CROSSED = [_input(name, ["batch", 1, "read", WIDTH]) for name in CROSS]


def _present(name: str) -> str:
    return name.replace("past_key_values", "present")


LOGITS = _input("logits", ["batch", "tokens", WORDS])
PRESENTS = [_input(_present(name), ["batch", 1, "past + tokens", WIDTH]) for name in CACHES]
CROSSED_OUT = [_input(_present(name), ["batch", 1, "read", WIDTH]) for name in CROSS]


def _nodes(is_first: bool, passes: bool = False) -> list[Node]:
    """A layer of attention to the tokens so far, then to the encoder's states. `passes`: with all outputs."""
    n = helper.make_node
    nodes = [n("Gather", ["words", "input_ids"], ["x"])]
    for part in "qkv":
        nodes += [n("MatMul", ["x", f"w{part}"], [f"{part}2"]), n("Unsqueeze", [f"{part}2", "one"], [f"{part}3"])]
    keys, values = map(_present, CACHES)
    for part, past, present in zip("kv", CACHES, (keys, values), strict=True):
        nodes.append(
            n("Identity", [f"{part}3"], [present]) if is_first else n("Concat", [past, f"{part}3"], [present], axis=2)
        )
    nodes += [n("Transpose", [keys], ["kt"], perm=[0, 1, 3, 2]), n("MatMul", ["q3", "kt"], ["free"])]
    if is_first:
        nodes += [
            n("Shape", ["input_ids"], ["sizes"]), n("Gather", ["sizes", "one"], ["length"]),
            n("Concat", ["length", "length"], ["square"], axis=0), n("Expand", ["hidden", "square"], ["all"]),
            n("Trilu", ["all", "axis"], ["mask"], upper=1), n("Add", ["free", "mask"], ["scores"]),
        ]  # fmt: skip
    nodes += [n("Softmax", ["free" if not is_first else "scores"], ["weights"], axis=3)]
    nodes += [n("MatMul", ["weights", values], ["seen"])]
    crossed = list(map(_present, CROSS)) if is_first else CROSS
    if is_first:
        for part, present in zip("kv", crossed, strict=True):
            nodes += [n("MatMul", ["encoder_hidden_states", f"u{part}"], [f"c{part}"])]
            nodes += [n("Unsqueeze", [f"c{part}", "one"], [present])]
    elif passes:
        nodes += [n("Identity", [name], [_present(name)]) for name in CROSS]
    nodes += [n("Transpose", [crossed[0]], ["ct"], perm=[0, 1, 3, 2]), n("MatMul", ["q3", "ct"], ["cs"])]
    nodes += [n("Softmax", ["cs"], ["cw"], axis=3), n("MatMul", ["cw", crossed[1]], ["read"])]
    nodes += [n("Add", ["seen", "read"], ["sum"]), n("Squeeze", ["sum", "one"], ["flat"])]
    return [*nodes, n("MatMul", ["flat", "wo"], ["logits"])]


def _save(path: Path, nodes: list[Node], inputs: list[Any], outputs: list[Any]) -> None:
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, WEIGHTS), opset_imports=OPSETS), path)


def _save_encoder(folder: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["z"]),
        helper.make_node("Tanh", ["z"], ["last_hidden_state"]),
    ]
    _save(folder / "encoder_model.onnx", nodes, [TOKENS], [_input("last_hidden_state", ["batch", "tokens", WIDTH])])


def _save_pair(folder: Path) -> Path:
    _save(folder / "decoder_model.onnx", _nodes(True), [TOKENS, STATES], [LOGITS, *PRESENTS, *CROSSED_OUT])
    _save(folder / "decoder_with_past_model.onnx", _nodes(False), [TOKENS, *PASTS, *CROSSED], [LOGITS, *PRESENTS])
    return folder / "decoder_model.onnx"


def _save_merged(folder: Path) -> Path:
    outputs = [LOGITS, *PRESENTS, *CROSSED_OUT]
    branches = {
        f"{name}_branch": helper.make_graph(_nodes(is_first, passes=True), name, [], outputs)
        for name, is_first in (("then", False), ("else", True))
    }
    node = helper.make_node("If", ["use_cache_branch"], [v.name for v in outputs], **branches)
    flag = _input("use_cache_branch", [1], TensorProto.BOOL)
    _save(folder / "decoder_model_merged.onnx", [node], [TOKENS, STATES, *PASTS, *CROSSED, flag], outputs)
    return folder / "decoder_model_merged.onnx"


def _expected(folder: Path, read: list[int], start: list[int], steps: int) -> tuple[list[int], list[np.ndarray]]:
    """Tokens and logits of ONNX Runtime."""
    _save_pair(folder)
    names = ("encoder_model", "decoder_model", "decoder_with_past_model")
    encoder, first, later = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in names)
    (states,) = encoder.run(None, {"input_ids": np.array([read])})
    found = first.run(None, {"input_ids": np.array([start]), "encoder_hidden_states": states})
    outputs = dict(zip((o.name for o in first.get_outputs()), found, strict=True))
    caches = {name: outputs[_present(name)] for name in (*CACHES, *CROSS)}
    logits, tokens = [outputs["logits"][0, -1]], [int(outputs["logits"][0, -1].argmax())]
    for _ in range(steps):
        found = later.run(None, {"input_ids": np.array([[tokens[-1]]]), **caches})
        caches |= dict(zip(CACHES, found[1:], strict=True))
        logits.append(found[0][0, -1])
        tokens.append(int(logits[-1].argmax()))
    return tokens, logits


def _found(path: Path, read: list[int], start: list[int], tokens: list[int]) -> list[np.ndarray]:
    """The logits of LiteRT for the same tokens."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    encode, prefill, decode = map(interpreter.get_signature_runner, ("encode", "prefill", "decode"))
    states = encode(input_ids=np.array([read]))["encoder_hidden_states"]
    caches = prefill(tokens=np.array([start], np.int32), encoder_hidden_states=states)
    logits = [caches.pop("logits")[0, -1]]
    for at, token in enumerate(tokens[:-1], len(start)):
        mask = np.where(np.arange(CONTEXT) <= at, 0, -1e30).astype(np.float32).reshape(1, 1, 1, -1)
        given = {"tokens": np.array([[token]], np.int32), "input_pos": np.array([at], np.int32), "mask": mask}
        caches |= decode(**given, **caches)
        logits.append(caches.pop("logits")[0, -1])
    return logits


@pytest.mark.parametrize("start", [[3], [3, 7, 1]])
@pytest.mark.parametrize("save", [_save_pair, _save_merged])
def test_the_same_logits(save: Any, start: list[int], tmp_path: Path) -> None:
    read = [5, 9, 2, 11, 4, 0, 1, 8, 3, 12, 6, 7]
    _save_encoder(tmp_path)
    path = save(tmp_path)
    done = llm.convert(path, tmp_path / "m.tflite", context=CONTEXT, prefill=[len(start)], check="require")
    assert done.check is not None and "the same " in done.check.outputs[0].note
    tokens, logits = _expected(tmp_path, read, start, 6)
    found = _found(tmp_path / "m.tflite", read, start, tokens)
    assert list(done.ops) == ["encode", "prefill", "decode"]
    assert np.allclose(found, logits, atol=1e-4)


@pytest.mark.parametrize("part", ["encoder_model", "decoder_model", "decoder_with_past_model"])
def test_the_check_finds_other_weights(part: str, tmp_path: Path) -> None:
    _save_encoder(tmp_path)
    path = _save_pair(tmp_path)
    llm.convert(path, tmp_path / "m.tflite", context=CONTEXT, check=False)
    model = onnx.load(tmp_path / f"{part}.onnx")
    for weight in model.graph.initializer:
        if weight.name in ("words", "wo"):
            weight.raw_data = _random(f"another {weight.name}", *weight.dims).raw_data
    onnx.save(model, tmp_path / f"{part}.onnx")
    assert check(path, tmp_path / "m.tflite").status == "failed"


def test_weights_of_several_files_are_stored_once(tmp_path: Path) -> None:
    from onnxtfl.formats import files

    _save_encoder(tmp_path)
    llm.convert(_save_pair(tmp_path), tmp_path / "m.tflite", context=CONTEXT)
    large = [data for data in _constants(files.read(tmp_path / "m.tflite")) if data.nbytes >= WIDTH * WIDTH * 4]
    assert len({data.key for data in large}) == len({data.content_key for data in large})


def _constants(model: Any) -> list[Any]:
    values = (v for graph in model.graphs() for node in graph.nodes for v in node.present_operands)
    return [v.data for v in values if v.data is not None]


def test_a_missing_encoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"encoder_model\.onnx"):
        llm.convert(_save_pair(tmp_path), tmp_path / "m.tflite")
    assert not (tmp_path / "m.tflite").exists()


def test_there_is_no_container(tmp_path: Path) -> None:
    _save_encoder(tmp_path)
    with pytest.raises(UsageError, match="no encoder-decoders"):
        llm.convert(_save_pair(tmp_path), tmp_path / "m.litertlm")
