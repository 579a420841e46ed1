"""The metadata of a .tflite file: its description, and the entries of its table `metadata`, each with a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxtfl.formats.tflite.buffers import Buffers
from onnxtfl.ir.metadata import Metadata, Property
from onnxtfl.ir.model import Model


def read_metadata(table: Mapping[str, Any], buffers: Buffers) -> Metadata:
    """The metadata of a decoded Model table; the contents of entries stay in the file."""
    entries: dict[str, Property] = {e["name"] or "": buffers.raw(e["buffer"]) for e in table["metadata"] or ()}
    return Metadata(table["description"] or "", properties=entries)


def entries_of(model: Model) -> dict[str, Property]:
    """The entries of the table `metadata` for `model`."""
    return dict(model.metadata.properties)
