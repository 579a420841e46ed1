"""The options of TFLite's custom ops: FlexBuffers maps, or the bytes of a C struct of integers.

The FlexBuffers types that such options have can be read: maps of keys to numbers, bools, strings and vectors of these.
Source: the format of FlexBuffers (google/flatbuffers, docs/source/flexbuffers.md).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.flexbuffer import FlexBufferError, decode
from onnxtfl.ir.graph import Node


def custom_options(node: Node) -> dict[str, Any]:
    """Return the options of a custom op as a dict, empty without options. ValueError if malformed."""
    data = bytes(node.attributes.get("custom_options") or b"")
    if not data:
        return {}
    try:
        found = decode(data)
    except FlexBufferError as error:
        raise ValueError("malformed custom options") from error
    if not isinstance(found, dict):
        raise ValueError("custom options that are no map")
    return found


def custom_integers(node: Node, count: int) -> Sequence[int]:
    """The first `count` 32-bit integers of the options of a custom op, a C struct; ValueError if there are fewer."""
    data = bytes(node.attributes.get("custom_options") or b"")
    if len(data) < 4 * count:
        raise ValueError(f"custom options of {len(data)} bytes, {4 * count} expected")
    return struct.unpack(f"<{count}i", data[: 4 * count])
