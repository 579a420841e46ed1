"""Metadata of a model, without effect on its results."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import field

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.data import TensorData
from onnxtfl.ir.graph import Value

RECORD = "onnxtfl.record"
"""The property with the compressed record of the conversion."""
IO_TYPES = "onnxtfl.io_types"
"""The property that has, as JSON, the inputs and outputs of another type than in the source."""
QUANTIZED = "onnxtfl.quantized"
"""The property of a .tflite with the settings of `quantize`, as JSON."""
STATES = "onnxtfl.states"
"""The property that lists the states which are inputs and outputs."""

Property = str | bytes | TensorData
"""Text, bytes, or bytes that are still in the file (a uint8 tensor)."""
Texts = dict[str, str]
"""Properties of a part of a model, which are text."""
Late = Callable[[Mapping[Value, str]], Mapping[str, Property]]
"""Properties that depend on the written name of each value; called by a writer when all of these are known."""

_URI = "data:application/octet-stream;base64,"


@dataclass(frozen=True, slots=True)
class Producer:
    """The producer fields of an ONNX ModelProto; TFLite has none."""

    name: str = ""
    version: str = ""
    domain: str = ""
    model_version: int = 0
    ir_version: int = 0


@dataclass(frozen=True, slots=True)
class TfliteMetadata:
    """TFLite Metadata (a FlatBuffer M001), as in the file.

    `inputs`, `outputs`: the names of the tensors that its entries describe, in order.
    """

    content: bytes
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip archive: the compressed files, then its directory and end, whose offsets count from the first file."""

    body: TensorData
    directory: bytes
    end: bytes

    @property
    def nbytes(self) -> int:
        """The size of the archive."""
        return self.body.nbytes + len(self.directory) + len(self.end)


@dataclass
class Metadata:
    """The metadata of a model.

    `description`, `graph_description`: documentation of the model and of its main graph (TFLite has only the former).
    `descriptions`: documentation by tensor; `node_descriptions`: by first result of a node of the main graph.
    `properties`: all other entries by name. `graph_properties`, `tensor_properties`, `node_properties`: those of the
    main graph, by tensor, and by first result of a node (TFLite has none of these). `tflite`: TFLite Metadata. `files`:
    the associated files, an archive which a .tflite file has at its end.
    """

    description: str = ""
    graph_description: str = ""
    producer: Producer = Producer()
    descriptions: dict[str, str] = field(default_factory=dict)
    node_descriptions: dict[str, str] = field(default_factory=dict)
    properties: dict[str, Property] = field(default_factory=dict)
    graph_properties: Texts = field(default_factory=dict)
    tensor_properties: dict[str, Texts] = field(default_factory=dict)
    node_properties: dict[str, Texts] = field(default_factory=dict)
    tflite: TfliteMetadata | None = None
    files: Archive | None = None

    def of_the_model(self) -> Metadata:
        """The metadata without those of the main graph."""
        return Metadata(self.description, producer=self.producer, properties=self.properties, files=self.files)


def content_of(value: Property) -> bytes:
    """The bytes of a property."""
    if isinstance(value, TensorData):
        return value.numpy().tobytes()
    return value.encode() if isinstance(value, str) else value


def as_text(value: Property) -> str:
    """A property as text: its own where it is UTF-8 without NUL, else a data URI (base64)."""
    content = content_of(value)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text and isinstance(from_text(text), str):
        return text
    return _URI + base64.b64encode(content).decode()


def from_text(text: str) -> str | bytes:
    """The bytes for which :func:`as_text` returns this data URI; other text unchanged."""
    if text.startswith(_URI):
        try:
            content = base64.b64decode(text.removeprefix(_URI), validate=True)
        except (binascii.Error, ValueError):
            return text
        return content if as_text(content) == text else text
    return text
