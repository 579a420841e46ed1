"""The metadata of a language model for LiteRT-LM: defaults from the files beside it, and those of the user.

Metadata are a dictionary with the fields of LlmMetadata by name, in which a token is its id, a list of ids, or its
text, and `llm_model_type` may be the name of a type::

    start_token = 1
    stop_tokens = [2, "<|im_end|>"]
    max_num_tokens = 4096
    llm_model_type = "qwen3"
    jinja_prompt_template = "{% for message in messages %}..."
    prompt_templates.user = { prefix = "<|user|>", suffix = "<|end|>" }
    sampler_params = { type = "TOP_P", k = 40, p = 0.95, temperature = 0.8 }
"""

from __future__ import annotations

import os
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxtfl.errors import UsageError, suggestion
from onnxtfl.llm.builder import llm_metadata
from onnxtfl.llm.chat_template import for_typed_content
from onnxtfl.llm.model_files import CONFIG, GENAI, GENERATION, TOKENIZER, TOKENIZER_CONFIG, ModelFiles

Metadata = Mapping[str, Any]
_WITH_IDS = (GENAI, GENERATION, CONFIG)
_MODEL_TYPES = {
    **dict.fromkeys(("qwen2", "qwen2_moe"), "qwen2p5"),
    **dict.fromkeys(("qwen3", "qwen3_moe"), "qwen3"),
    **dict.fromkeys(("gemma3", "gemma3_text"), "gemma3"),
}
"""LiteRT-LM's type of a model by `model_type` in config.json; it decides how tool calls are read."""
_ONE_TOKEN, _IDS = ("start_token", "pad_token"), ("suppress_tokens",)


def metadata_of(files: ModelFiles, given: str | os.PathLike[str] | Metadata | None, context: int) -> dict[str, Any]:
    """The metadata of a model with `context` places: the defaults, replaced by `given` field by field; an empty value
    removes a field. Raises UsageError for unknown fields, and if there is no stop token.
    """
    own = _read(given) if isinstance(given, str | os.PathLike) else dict(given or {})
    found = {key: value for key, value in (_defaults(files, context) | own).items() if value not in ("", [], {})}
    if not found.get("stop_tokens"):
        names, keys = ", ".join((*_WITH_IDS, TOKENIZER_CONFIG)), "eos_token_id and eos_token"
        raise UsageError(
            f"there is no stop token: looked for {keys} in {names} in {files.described()}",
            hint="name it in the file of `metadata`, like stop_tokens = [2]",
        )
    if isinstance(most := found.get("max_num_tokens"), int) and not 0 < most <= context:
        raise UsageError(f"max_num_tokens of {most} in the metadata: the caches have {context} places")
    return found


def message_bytes(metadata: Metadata) -> bytes:
    """The metadata as LlmMetadata in bytes. Raises UsageError for unknown fields and values of another type."""
    from google.protobuf import json_format

    message = llm_metadata()
    known = [field.name for field in message.DESCRIPTOR.fields]
    unknown = next((key for key in metadata if key not in known), None)
    if unknown is not None:
        raise UsageError(f"metadata have no field {unknown!r}", hint=suggestion(unknown, known, "the fields"))
    try:
        json_format.ParseDict({key: _field(key, value) for key, value in metadata.items()}, message)
    except json_format.ParseError as error:
        raise UsageError(f"the metadata are not those of LiteRT-LM: {error}", hint="see docs/llm.md") from error
    content: bytes = message.SerializeToString(deterministic=True)
    return content


def _field(key: str, value: Any) -> Any:
    """The value of a field as protocol buffers have it in JSON."""
    if key in _ONE_TOKEN:
        return _token(value)
    if key == "stop_tokens":
        return [_token(one) for one in (value if isinstance(value, list | tuple) else [value])]
    if key in _IDS and isinstance(value, list | tuple):
        return {"ids": list(value)}
    return {value: {}} if key == "llm_model_type" and isinstance(value, str) else value


def _token(value: Any) -> Any:
    if isinstance(value, str):
        return {"token_str": value}
    if isinstance(value, int | list | tuple):
        return {"token_ids": {"ids": [value] if isinstance(value, int) else list(value)}}
    return value


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{os.fspath(path)}: cannot be read as TOML: {error}", hint="see docs/llm.md") from error


def _defaults(files: ModelFiles, context: int) -> dict[str, Any]:
    stops, template = list(dict.fromkeys(_stops(files))), _template(files)
    found: dict[str, Any] = {"start_token": _start(files, stops), "stop_tokens": stops, "max_num_tokens": context}
    type_ = next(files.values(("model_type",), CONFIG), None) or files.table(GENAI, "model").get("type")
    found["llm_model_type"] = _MODEL_TYPES.get(str(type_), "generic_model")
    found["jinja_prompt_template"] = for_typed_content(template) if template else ""
    found["sampler_params"] = _sampler(files)
    return found


def _stops(files: ModelFiles) -> Iterator[int | str]:
    """The ids of the tokens at which a text ends; a text where only the tokenizer names one. -1 is none."""
    ids = list(files.values(("eos_token_id",), *_WITH_IDS))
    for found in ids:
        for one in found if isinstance(found, list) else [found]:
            if not isinstance(one, int | str):
                raise UsageError(
                    f"eos_token_id is {reprlib.repr(found)}, neither a number nor a list of numbers",
                    hint=f"correct it in {', '.join(_WITH_IDS)}",
                )
            if isinstance(one, str) or one >= 0:
                yield one
    if not ids and (text := _text(files.table(TOKENIZER_CONFIG).get("eos_token"))):
        yield text


def _start(files: ModelFiles, stops: list[int | str]) -> int | str:
    """The token before each text; "" where the tokenizer states that there is none.

    A tokenizer that states nothing has one, unless it is a stop token too (as of GPT-2).
    """
    of_tokenizer = files.table(TOKENIZER_CONFIG)
    adds = of_tokenizer.get("add_bos_token")
    adds = _begins_with_special(files.table(TOKENIZER).get("post_processor")) if adds is None else adds
    ids = files.values(("bos_token_id",), *_WITH_IDS)
    found = next((one for one in ids if not isinstance(one, int) or one >= 0), None)
    found = _text(of_tokenizer.get("bos_token")) if found is None else found
    is_left_out = adds is False or (adds is None and found in stops)
    return found if isinstance(found, int | str) and not is_left_out else ""


def _begins_with_special(processor: Any) -> bool | None:
    """Whether a tokenizer.json's post-processor writes a special token first; None where it says nothing of it."""
    if not isinstance(processor, dict):
        return None
    parts, single = processor.get("processors"), processor.get("single")
    for part in parts if isinstance(parts, list) else ():
        if (found := _begins_with_special(part)) is not None:
            return found
    first = single[0] if isinstance(single, list) and single else None
    return "SpecialToken" in first if isinstance(first, dict) else None


def _text(token: Any) -> str:
    """The text of a token of tokenizer_config.json, a text or an object."""
    return str(token.get("content") or "") if isinstance(token, dict) else str(token or "")


def _template(files: ModelFiles) -> str:
    """The chat template, from a file of its own or from tokenizer_config.json."""
    if text := files.text("chat_template.jinja"):
        return text
    found = next(files.values(("chat_template",), "chat_template.json", TOKENIZER_CONFIG), "")
    if isinstance(found, list):
        by_name = {str(one.get("name")): one.get("template") for one in found if isinstance(one, dict)}
        found = by_name.get("default") or next(iter(by_name.values()), "")
    return found if isinstance(found, str) else ""


def _sampler(files: ModelFiles) -> dict[str, Any]:
    """The sampling that the configuration asks for; empty where it is greedy."""
    place = (GENERATION,) if files.table(GENERATION) else (GENAI, "search")
    if not files.table(*place).get("do_sample"):
        return {}
    return {
        "type": "TOP_P",
        "k": int(files.number(50, *place, "top_k")),
        "p": float(files.number(1.0, *place, "top_p")),
        "temperature": float(files.number(1.0, *place, "temperature")),
    }
