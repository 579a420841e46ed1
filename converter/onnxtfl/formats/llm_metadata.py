"""Short descriptions of the sections of a .litertlm file with a tokenizer and with LlmMetadata.

LlmMetadata is a protocol buffer of LiteRT-LM; the fields that have a text here are read from its bytes, without the
package that has its definition. Source: runtime/proto/llm_metadata.proto of LiteRT-LM 0.18.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.litertlm import HUGGING_FACE, METADATA, SENTENCE_PIECE, Section

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_START, _STOP, _TEMPLATES, _LENGTH, _TYPE, _JINJA = 1, 2, 3, 5, 6, 7
_MODEL_TYPES = {
    **{1: "generic_model", 2: "gemma3n", 3: "function_gemma", 4: "gemma3", 5: "qwen3", 7: "qwen2p5", 8: "gemma4"},
    **{9: "fast_vlm", 11: "lfm2", 12: "minicpm5", 13: "minicpmv4"},
}
_LARGEST = 1 << 26
"""Bytes of a tokenizer's JSON."""


def described(section: Section) -> str:
    """What a section has; "" for a kind that is not known here. Raises InvalidModelError if it is malformed."""
    describe = {METADATA: _metadata, HUGGING_FACE: _hugging_face, SENTENCE_PIECE: _sentence_piece}.get(section.kind)
    if describe is None:
        return ""
    try:
        return describe(section.content.read(0, section.content.size))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        message = f"{section.content.path}: malformed: the section {section.kind} cannot be read: {error}"
        raise InvalidModelError(message, code="E-FILE-005") from error


def _metadata(content: bytes) -> str:
    fields = list(_fields(content))
    starts, stops = ([_token(v) for number, v in fields if number == wanted] for wanted in (_START, _STOP))
    found = [f"start {starts[0]}"] if starts else []
    found += [f"stop {', '.join(stops)}"] if stops else []
    found += [f"length {value}" for number, value in fields if number == _LENGTH]
    types = [n for number, value in fields if number == _TYPE for n, _ in _fields(value)]
    found += [_MODEL_TYPES.get(n, f"model type {n}") for n in types]
    found += ["prompt templates" for number, _ in fields if number == _TEMPLATES]
    found += [f"chat template of {len(v.decode())} characters" for number, v in fields if number == _JINJA]
    return ", ".join(found)


def _token(union: bytes) -> str:
    """The ids or the text of a TokenUnion."""
    texts = list[str]()
    for number, value in _fields(union):
        texts += [repr(value.decode())] if number == 2 else map(str, _ids(value))
    return " ".join(texts)


def _ids(content: bytes) -> list[int]:
    """The ids of a TokenIds, packed or not."""
    found = list[int]()
    for _, value in _fields(content):
        position = 0
        while isinstance(value, bytes) and position < len(value):
            number, position = _varint(value, position)
            found.append(number)
        found += [value] if isinstance(value, int) else []
    return found


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protocol buffer: number and value, an integer or bytes. ValueError if it is malformed."""
    position = 0
    while position < len(content):
        key, position = _varint(content, position)
        kind = key & 7
        if kind == _VARINT:
            value, position = _varint(content, position)
            yield key >> 3, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, position = _varint(content, position)
        if size is None or position + size > len(content):
            raise ValueError("it is no protocol buffer")
        yield key >> 3, content[position : position + size]
        position += size


def _varint(content: Sequence[int], position: int) -> tuple[int, int]:
    """An integer and the position after it. ValueError if it has more than 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        byte, position = content[position], position + 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
    raise ValueError("it is no protocol buffer")


def _hugging_face(content: bytes) -> str:
    size = int.from_bytes(content[:8], "little")
    unpacked = zlib.decompressobj().decompress(content[8:], _LARGEST)
    if len(unpacked) != size:
        raise ValueError(f"{len(unpacked)} bytes of {size}")
    model = json.loads(unpacked)["model"]
    return f"tokenizer.json, {model.get('type') or 'of an unnamed type'}, {len(model.get('vocab') or ())} tokens"


def _sentence_piece(content: bytes) -> str:
    return f"SentencePiece, {sum(number == 1 for number, _ in _fields(content))} tokens"
