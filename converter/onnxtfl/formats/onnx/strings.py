"""Strings of a message. The protobuf classes give bytes where a string field is not UTF-8."""

from __future__ import annotations

from onnxtfl.errors import InvalidModelError


def name_of(content: str | bytes) -> str:
    """`content` as a name; InvalidModelError where it is not UTF-8."""
    if isinstance(content, bytes):
        raise InvalidModelError(f"garbled: a name is not UTF-8: {content!r}")
    return content


def text_of(content: str | bytes) -> str:
    """`content` for people to read, garbled letters as question marks."""
    return content.decode(errors="replace") if isinstance(content, bytes) else content


def decoded(content: bytes) -> str | bytes:
    """`content` as text where it is UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
