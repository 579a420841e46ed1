"""Which models are decoders with caches, and what the errors of others say."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from onnxtfl.errors import UnsupportedError
from onnxtfl.formats import files
from onnxtfl.llm.decoders import Decoder, decoder_of
from tests.unit.decoder_forms import TinyDecoder

TOKENS, MASK = (
    ("input_ids", TensorProto.INT64, ["batch", "new"]),
    ("attention_mask", TensorProto.INT64, ["batch", "all"]),
)
LOGITS = ("logits", TensorProto.FLOAT, ["batch", "new", 40])
Spec = tuple[str, int, list[Any]]


def decoder(inputs: list[Spec], outputs: list[Spec]) -> Decoder:
    """The decoder of a file with these inputs and outputs."""
    nodes = [helper.make_node("Cast", [inputs[0][0]], [name], to=type_) for name, type_, _ in outputs]
    values = ([helper.make_tensor_value_info(*spec) for spec in side] for side in (inputs, outputs))
    model = helper.make_model(helper.make_graph(nodes, "decoder", *values), opset_imports=[helper.make_opsetid("", 17)])
    return decoder_of(files.read(model.SerializeToString()).main)


def state(name: str, *shape: Any) -> Spec:
    return name, TensorProto.FLOAT, ["batch", *shape]


def caches(past: str, present: str, places: int = 2) -> tuple[list[Spec], list[Spec]]:
    """Caches of two layers, whose axis of places is at an index of the shape."""
    shapes = [[2, 16] for _ in "io"]
    for shape, size in zip(shapes, ("past", "past + new"), strict=True):
        shape.insert(places - 1, size)  # type: ignore[arg-type]
    names = [(layer, kind) for layer in range(2) for kind in ("key", "value")]
    return [state(past.format(*n), *shapes[0]) for n in names], [state(present.format(*n), *shapes[1]) for n in names]


@pytest.mark.parametrize(
    ("past", "present"),
    [
        ("past_key_values.{0}.{1}", "present.{0}.{1}"),
        ("past_key_values.{0}.{1}", "present_key_values.{0}.{1}"),
        ("past_{1}_{0}", "present_{1}_{0}"),
        ("past_{1}_self_{0}", "present_{1}_self_{0}"),
        ("cache_{1}_{0}", "new_cache_{1}_{0}"),
        ("k_{0}_{1}", "out_k_{0}_{1}"),
        ("layers.{0}.attention.{1}s", "layers.{0}.attention.{1}s.out"),
    ],
)
@pytest.mark.parametrize("places", [1, 2, 3])
def test_names_of_caches(past: str, present: str, places: int) -> None:
    inputs, outputs = caches(past, present, places)
    found = decoder([TOKENS, MASK, *inputs], [LOGITS, *outputs])
    assert (found.tokens, found.attention, found.positions, found.logits) == (
        "input_ids",
        "attention_mask",
        "",
        "logits",
    )
    names = ["kv_cache_k_0", "kv_cache_v_0", "kv_cache_k_1", "kv_cache_v_1"]
    assert [(c.past, c.present, c.axis, c.name) for c in found.caches] == [
        (i[0], o[0], places, name) for i, o, name in zip(inputs, outputs, names, strict=True)
    ]


def test_caches_without_a_kind() -> None:
    """Keys and values in turn."""
    inputs, outputs = caches("input_{0}{1}", "output_{0}{1}")
    numbers = [
        [(f"{side}_{i}", *spec[1:]) for i, spec in enumerate(specs)] for side, specs in (("x", inputs), ("y", outputs))
    ]
    found = decoder([TOKENS, *numbers[0]], [*numbers[1], LOGITS])
    assert [c.name for c in found.caches] == ["kv_cache_k_0", "kv_cache_v_0", "kv_cache_k_1", "kv_cache_v_1"]


def refusal(inputs: list[Spec], outputs: list[Spec]) -> str:
    with pytest.raises(UnsupportedError) as caught:
        decoder(inputs, outputs)
    assert caught.value.code == "E-OP-010"
    return str(caught.value)


def test_an_encoder() -> None:
    said = refusal([TOKENS, MASK], [state("last_hidden_state", "new", 64)])
    assert "looked for pairs of an input and an output with keys and values (past_key_values.0.key and" in said
    assert "an output of logits (logits); its inputs are input_ids, attention_mask, its outputs last_hid" in said
    assert "text-generation-with-past" in said


def test_a_decoder_without_caches() -> None:
    said = refusal([TOKENS, MASK], [LOGITS])
    assert "looked for pairs of" in said and "logits (logits)" not in said


def test_state_of_another_kind() -> None:
    """Mamba: the inputs of a convolution, and the state of a recurrence."""
    inputs, outputs = (
        [
            state(f"{side}.{i}.{kind}", *shape)
            for i in range(24)
            for kind, shape in (("conv", [128, 4]), ("ssm", [128, 16]))
        ]
        for side in ("past", "present")
    )
    said = refusal([TOKENS, *inputs], [LOGITS, *outputs])
    assert "it has state that is not keys and values: past.0.conv, past.0.ssm" in said and "more" in said
    assert len(said) < 700 and "LiteRT-LM keeps keys and values" in said


def test_keys_and_values_beside_other_state() -> None:
    """A hybrid of attention and Mamba."""
    inputs, outputs = caches("past.{0}.{1}", "present.{0}.{1}")
    inputs, outputs = [*inputs, state("past.2.conv", 128, 4)], [*outputs, state("present.2.conv", 128, 4)]
    said = refusal([TOKENS, *inputs], [LOGITS, *outputs])
    assert "it has state that is not keys and values: past.2.conv" in said and "looked for" not in said


def test_other_inputs() -> None:
    """Gemma 3n: embeddings of each layer."""
    inputs, outputs = caches("past.{0}.{1}", "present.{0}.{1}")
    layers = state("per_layer_inputs", "new", 2, 16)
    said = refusal([state("inputs_embeds", "new", 64), layers, MASK, *inputs], [LOGITS, *outputs])
    assert "it has other inputs: per_layer_inputs" in said and "export the decoder without these inputs" in said


def test_a_decoder_without_logits() -> None:
    inputs, outputs = caches("past.{0}.{1}", "present.{0}.{1}")
    said = refusal([TOKENS, MASK, *inputs], [state("hidden_states", "new", 64), *outputs])
    assert "looked for an output of logits (logits)" in said and "without `exclude_lm_head`" in said


def test_a_decoder_that_reads_an_encoder() -> None:
    inputs, outputs = caches("past_key_values.{0}.decoder.{1}", "present.{0}.decoder.{1}")
    states = state("encoder_hidden_states", "text", 64)
    said = refusal([TOKENS, states, *inputs], [LOGITS, *outputs])
    assert "it has other inputs: encoder_hidden_states" in said and "convert an encoder-decoder from the folder" in said


def test_embeddings_instead_of_tokens() -> None:
    inputs, outputs = caches("past_key_values.{0}.{1}", "present.{0}.{1}")
    found = decoder([state("inputs_embeds", "new", 64), MASK, *inputs], [LOGITS, *outputs])
    assert (found.tokens, found.has_embeddings, len(found.caches)) == ("inputs_embeds", True, len(inputs))
    said = refusal([state("inputs_embeds", 64), MASK, *inputs], [LOGITS, *outputs])
    assert "looked for an input of token ids (input_ids) or of their embeddings (inputs_embeds)" in said


def test_open_batch() -> None:
    """One sequence is converted: the batch may be of any size, and fixed at 1."""
    model = TinyDecoder().model()
    for value in model.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    assert len(decoder_of(files.read(model.SerializeToString()).main).caches) == 4
