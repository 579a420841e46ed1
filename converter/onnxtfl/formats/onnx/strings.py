"""Strings of a message. The protobuf classes return bytes where a string field is not UTF-8."""

from __future__ import annotations

from onnxtfl.errors import InvalidModelError


def name_of(content: str | bytes) -> str:
    """`content` as a name; InvalidModelError where it is not UTF-8."""
    if isinstance(content, bytes):
        raise InvalidModelError(f"malformed: a name is not UTF-8: {content!r}")
    return content


def text_of(content: str | bytes) -> str:
    """`content` as text, bytes that are not UTF-8 as replacement characters."""
    return content.decode(errors="replace") if isinstance(content, bytes) else content


def decoded(content: bytes) -> str | bytes:
    """`content` as text where it is UTF-8, else unchanged."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
