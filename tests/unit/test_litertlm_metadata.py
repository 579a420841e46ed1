"""The metadata of language models: defaults from the files beside them, TOML files, chat templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onnxtfl.errors import UsageError
from onnxtfl.llm.chat_template import for_typed_content
from onnxtfl.llm.metadata import message_bytes, metadata_of
from onnxtfl.llm.model_files import ModelFiles
from onnxtfl.llm.sizes import Sizes, sizes_of

pytest.importorskip("litert_lm_builder")


def files_of(folder: Path, **tables: Any) -> ModelFiles:
    for name, table in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(table))
    return ModelFiles(folder / "model.onnx")


def test_stop_tokens_are_those_of_all_files(tmp_path: Path) -> None:
    files = files_of(
        tmp_path,
        genai_config={"model": {"eos_token_id": [7, 8], "bos_token_id": 1, "type": "qwen3"}},
        generation_config={"eos_token_id": [8, 9], "do_sample": True, "top_k": 20, "top_p": 0.8},
        config={"eos_token_id": 2, "model_type": "qwen3"},
    )
    found = metadata_of(files, None, 64)
    assert found["stop_tokens"] == [7, 8, 9, 2]
    assert found["start_token"] == 1 and found["max_num_tokens"] == 64 and found["llm_model_type"] == "qwen3"
    assert found["sampler_params"] == {"type": "TOP_P", "k": 20, "p": 0.8, "temperature": 1.0}


def test_a_stop_token_of_the_tokenizer_only(tmp_path: Path) -> None:
    files = files_of(tmp_path, tokenizer_config={"eos_token": {"content": "</s>"}, "bos_token": "<s>"})
    found = metadata_of(files, None, 64)
    assert found["stop_tokens"] == ["</s>"] and found["start_token"] == "<s>"


@pytest.mark.parametrize(
    ("tokenizer_config", "post_processor", "start"),
    [
        ({"add_bos_token": False}, None, None),
        ({"add_bos_token": True}, None, 1),
        ({}, {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]}, None),
        ({}, {"type": "Sequence", "processors": [{"type": "ByteLevel"}, {"single": [{"SpecialToken": {}}]}]}, 1),
        ({}, {"type": "ByteLevel"}, 1),
    ],
    ids=str,
)
def test_the_start_token_is_that_which_the_tokenizer_writes(
    tmp_path: Path, tokenizer_config: dict[str, Any], post_processor: Any, start: int | None
) -> None:
    files = files_of(
        tmp_path,
        config={"bos_token_id": 1, "eos_token_id": 2},
        tokenizer_config=tokenizer_config,
        tokenizer={"post_processor": post_processor},
    )
    assert metadata_of(files, None, 64).get("start_token") == start


def test_a_start_token_that_is_a_stop_token(tmp_path: Path) -> None:
    found = metadata_of(files_of(tmp_path, config={"bos_token_id": 5, "eos_token_id": 5}), None, 64)
    assert "start_token" not in found


def test_a_toml_file_replaces_fields(tmp_path: Path) -> None:
    files = files_of(tmp_path, config={"bos_token_id": 1, "eos_token_id": 2})
    (tmp_path / "own.toml").write_text(
        'start_token = ""\nstop_tokens = [3, [4, 5], "<end>"]\nllm_model_type = "qwen2p5"\nsuppress_tokens = [9]\n'
        'prompt_templates.user = { prefix = "<u>", suffix = "</u>" }\nsupports_thinking = true\n'
        'sampler_params = { type = "TOP_K", k = 40, temperature = 0.5 }\n'
    )
    from litert_lm_builder.runtime.proto import llm_metadata_pb2

    found = llm_metadata_pb2.LlmMetadata.FromString(message_bytes(metadata_of(files, tmp_path / "own.toml", 64)))
    assert not found.HasField("start_token") and found.max_num_tokens == 64
    assert [list(t.token_ids.ids) or t.token_str for t in found.stop_tokens] == [[3], [4, 5], "<end>"]
    assert found.llm_model_type.WhichOneof("model_type") == "qwen2p5" and list(found.suppress_tokens.ids) == [9]
    assert found.prompt_templates.user.prefix == "<u>" and found.supports_thinking
    assert found.sampler_params.k == 40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stop_tokens = [", "cannot be read as TOML"),
        ("stop_tokens = [2]\nmax_num_tokens = -5", "max_num_tokens of -5"),
        ("stop_tokens = 2\nstop = 1", "no field 'stop'"),
        ('llm_model_type = "gpt9"\nstop_tokens = 2', "gpt9"),
        ("start_token = 1", "there is no stop token: looked for eos_token_id and eos_token in genai_config.json"),
    ],
)
def test_a_toml_file_that_does_not_fit(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(UsageError) as error:
        message_bytes(metadata_of(files_of(tmp_path), tmp_path / "own.toml", 64))
    assert message in str(error.value)


def test_a_configuration_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"config\.json: cannot be read as JSON"):
        metadata_of(ModelFiles(tmp_path / "model.onnx"), None, 64)


JOINED = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '\\n' }}{% endfor %}"
TYPED = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
BOTH = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" + TYPED[21:] + "{% endif %}"


def rendered(template: str) -> str:
    from jinja2 import Environment

    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": " two"}]
    messages = [{"role": "user", "content": parts}, {"role": "model", "content": "three"}]
    return Environment(trim_blocks=True).from_string(template).render(messages=messages)


@pytest.mark.parametrize("template", ["\n" + JOINED, JOINED.replace("m['content']", "m.content | trim")])
def test_a_template_of_texts_gets_texts(template: str) -> None:
    assert for_typed_content(template) != template
    assert rendered(for_typed_content(template)).strip() == "<|user|>one two\n<|model|>three"


def test_a_template_of_typed_parts_stays() -> None:
    for template in (TYPED, BOTH + "{% endfor %}", "{{ no", "{{ raise_exception('x') }}"):
        assert for_typed_content(template) == template


@pytest.mark.parametrize(
    "template",
    [
        "{% set all = namespace(x='onnxtfl') %}{% for i in range(40) %}{% set all.x = all.x ~ all.x %}{% endfor %}",
        "{{ '%999999999999d' % 1 }}",
        "{{ 1 / 0 }}",
        "{{ range(10 ** 12) }}",
    ],
)
def test_a_template_that_cannot_be_rendered_stays(template: str) -> None:
    assert for_typed_content(template) == template


def test_a_template_that_does_not_end_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxtfl.llm.chat_template._SECONDS", 1)
    template = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert for_typed_content(template) == template


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("generation_config.json", '{"do_sample": true, "top_k": "many"}', "generation_config.json: top_k is 'many'"),
        ("generation_config.json", '{"do_sample": true, "top_p": NaN}', "generation_config.json: top_p is nan"),
        ("genai_config.json", '{"search": {"do_sample": true, "top_k": [1]}}', "genai_config.json: top_k is [1]"),
        ("config.json", '{"eos_token_id": [{"a": 1}]}', "eos_token_id is [{'a': 1}]"),
        ("config.json", '{"a":' * 100_000, "config.json: cannot be read as JSON"),
        ("chat_template.jinja", "\udcff", "chat_template.jinja: cannot be read as text"),
    ],
)
def test_malformed_values_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    files = files_of(tmp_path, config={"eos_token_id": 2})
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError) as error:
        metadata_of(files, None, 64)
    assert message in str(error.value)


def test_no_token_is_minus_one(tmp_path: Path) -> None:
    files = files_of(
        tmp_path, config={"eos_token_id": [-1, 2], "bos_token_id": -1}, generation_config={"bos_token_id": 1}
    )
    found = metadata_of(files, None, 64)
    assert found["stop_tokens"] == [2] and found["start_token"] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("genai_config", {"model": "x", "search": None}),
        ("genai_config", {"model": None, "search": [1]}),
        ("generation_config", {"do_sample": True, "top_k": None}),
        ("tokenizer", {"post_processor": {"processors": 5, "single": [None]}}),
        ("tokenizer_config", {"chat_template": [{"name": [1], "template": 5}]}),
    ],
)
def test_values_of_another_type_say_nothing(tmp_path: Path, name: str, content: Any) -> None:
    found = metadata_of(files_of(tmp_path, config={"eos_token_id": 2}, **{name: content}), None, 64)
    assert found["stop_tokens"] == [2]


def test_templates_are_found(tmp_path: Path) -> None:
    by_name = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": TYPED}]
    files = files_of(tmp_path, config={"eos_token_id": 2}, tokenizer_config={"chat_template": by_name})
    assert metadata_of(files, None, 64)["jinja_prompt_template"] == TYPED
    (tmp_path / "chat_template.jinja").write_text("of the file")
    assert metadata_of(files, None, 64)["jinja_prompt_template"] == "of the file"


def test_the_engine_renders_a_template_of_texts(tmp_path: Path) -> None:
    litert_lm = pytest.importorskip("litert_lm")
    import onnxtfl
    from tests.unit.tiny_decoders import write_decoder

    model = write_decoder(tmp_path)
    files_of(tmp_path, tokenizer_config={"chat_template": JOINED})
    onnxtfl.llm.convert(model, tmp_path / "model.litertlm", prefill=[8], context=64)
    with (
        litert_lm.Engine(str(tmp_path / "model.litertlm"), cache_dir=":nocache") as engine,
        engine.create_conversation() as conversation,
    ):
        assert conversation.render_message_to_string("Hello") == "<|user|>Hello\n"


@pytest.mark.parametrize(
    ("config", "prefill", "context", "sizes"),
    [
        ({}, None, None, Sizes((32, 128, 1024), 1024)),
        ({"max_position_embeddings": 32768}, None, None, Sizes((32, 128, 1024), 4096)),
        ({"n_positions": 20}, None, None, Sizes((20,), 20)),
        ({"text_config": {"max_position_embeddings": 512}}, [64, 8, 64], None, Sizes((8, 64), 512)),
        ({"max_position_embeddings": 512}, None, 256, Sizes((32, 128), 256)),
    ],
    ids=str,
)
def test_sizes(tmp_path: Path, config: dict[str, Any], prefill: Any, context: Any, sizes: Sizes) -> None:
    assert sizes_of(files_of(tmp_path, config=config), prefill, context) == sizes
