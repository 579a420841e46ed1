"""External data: weights in files next to the model. Source: onnx.proto, TensorProto.external_data."""

from __future__ import annotations

from onnx import TensorProto

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.data_files import DataFiles
from onnxtfl.formats.onnx.names import text_of
from onnxtfl.ir.data import FileData
from onnxtfl.ir.types import DType


class ExternalFiles(DataFiles):
    """The data files of an ONNX model."""

    def data(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> FileData:
        """The values of `tensor`. Raises InvalidModelError if the file is missing, truncated or at a refused
        location.
        """
        entries = {text_of(e.key): text_of(e.value) for e in tensor.external_data}
        name = tensor.name
        offset = _number(entries.get("offset", "0"), "offset", name)
        length = _number(entries["length"], "length", name) if "length" in entries else None
        return self.part(entries.get("location", ""), offset, length, dtype, shape, name)


def _number(text: str, what: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidModelError(f"tensor {name!r}: invalid {what} {text!r} of external data", code="E-FILE-006")
    return int(text)
