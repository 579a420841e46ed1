"""Protobuf messages under construction: tensors are referenced, and streamed when the message is written."""

from __future__ import annotations

from typing import BinaryIO

from onnxtfl.formats.onnx.payload import BYTES, encode_varint
from onnxtfl.formats.source import copy_data
from onnxtfl.formats.write_ahead import writing_ahead
from onnxtfl.ir.data import TensorData


class Message:
    """A protobuf message under construction; `size` counts its bytes, those of tensors included."""

    def __init__(self, content: bytes = b"") -> None:
        self.parts: list[bytearray | TensorData] = []
        self.size = 0
        self.raw(content)

    def raw(self, content: bytes | bytearray) -> Message:
        """Append serialized fields."""
        if not self.parts or isinstance(self.parts[-1], TensorData):
            self.parts.append(bytearray())
        self.parts[-1] += content  # type: ignore[operator]
        self.size += len(content)
        return self

    def field(self, number: int, content: Message | bytes) -> Message:
        """Append a field of wire type LEN."""
        length = content.size if isinstance(content, Message) else len(content)
        self.raw(encode_varint(number << 3 | BYTES) + encode_varint(length))
        return self.raw(content) if isinstance(content, bytes) else self.extend(content)

    def extend(self, content: Message) -> Message:
        """Append the fields of another message of the same kind."""
        for part in content.parts:
            if isinstance(part, TensorData):
                self.parts.append(part)
                self.size += part.nbytes
            else:
                self.raw(part)
        return self

    def data(self, number: int, content: TensorData) -> Message:
        """Append the packed bytes of a tensor as a field of wire type LEN."""
        self.raw(encode_varint(number << 3 | BYTES) + encode_varint(content.nbytes))
        self.parts.append(content)
        self.size += content.nbytes
        return self

    def write(self, out: BinaryIO) -> None:
        """Stream the message. Raises InvalidModelError if a source file has changed since it was read."""
        with writing_ahead(out) as ahead:
            for part in self.parts:
                if isinstance(part, TensorData):
                    copy_data(part, ahead)
                else:
                    ahead.write(part)
