"""The metadata of a source that is kept in its conversion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from onnxtfl.errors import UsageError
from onnxtfl.formats.onnx import state_metadata
from onnxtfl.formats.onnx.metadata import FILES, PRODUCER, READABLE
from onnxtfl.formats.tflite import tflite_metadata
from onnxtfl.formats.tflite.metadata import OF_THE_FILE, ONNX, sides_of
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.metadata import IO_TYPES, QUANTIZED, RECORD, STATES, Metadata, TfliteMetadata
from onnxtfl.ir.model import Model

_OF_THE_CONVERSION = frozenset({RECORD, IO_TYPES, QUANTIZED, *OF_THE_FILE})
"""Properties that a conversion replaces or omits."""
RESERVED = _OF_THE_CONVERSION | {STATES, ONNX, READABLE, FILES, tflite_metadata.KEY}
"""Properties that readers of the formats interpret; a user cannot set them."""
MOST_IN_ONNX = 16 << 20
"""Bytes of the largest property or archive that is written to ONNX files: readers keep it in memory as base64."""
MOST_OF_NODES = 64 << 10
"""Limit on the bytes of documentation of all nodes or all tensors: exporters write a stack trace for each."""
MOST_OF_PROPERTIES = 4 << 10
"""Limit on the bytes of properties of all nodes or all tensors: exporters write debugging information there."""
_CACHE = "xnnpack"


def carried(
    source: Model,
    graph: Graph,
    added: Mapping[str, str] | None = None,
    *,
    elements: Mapping[str, Iterable[str]],
    to_onnx: bool,
) -> tuple[Metadata, list[str]]:
    """The metadata of `source` for the converted `graph`, and the names of the parts that are too large.

    `added`: properties in addition. Descriptions are those of the tensors with these names; `elements` of a sequence
    have that of the sequence.
    """
    metadata = source.metadata
    properties = {k: v for k, v in metadata.properties.items() if k not in _OF_THE_CONVERSION}
    properties = {k: v for k, v in properties.items() if not k.lower().startswith(_CACHE)}
    if not _has_states(source, graph):
        properties.pop(STATES, None)
    owners = {tensor: name for name, tensors in elements.items() for tensor in tensors}
    described = {t: metadata.descriptions[o] for t, o in owners.items() if o in metadata.descriptions}
    result = replace(metadata, properties=properties, descriptions=metadata.descriptions | described)
    result.tflite = _aligned(result, graph)
    if result.producer.name == PRODUCER and source.format == "onnx":
        result.producer = replace(result.producer, name="")
    dropped = list(_drop_large(result, to_onnx))
    result.properties |= dict(added or {})
    return result, dropped


def check_added(added: Mapping[str, object]) -> None:
    """Raise UsageError for properties that are not text, or that have a reserved or an empty name."""
    for key, value in added.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(f"the metadata {key!r} is not text", hint="convert names and values to str")
        if not key or key in RESERVED:
            raise UsageError(f"the name {key!r} of metadata is reserved", hint="use another name")
        try:
            (key + value).encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"the metadata {key!r} is not UTF-8") from error


def _aligned(metadata: Metadata, graph: Graph) -> TfliteMetadata | None:
    """TFLite Metadata for the inputs and outputs of `graph`."""
    if metadata.tflite is None:
        return None
    before = {"inputs": metadata.tflite.inputs, "outputs": metadata.tflite.outputs}
    after = sides_of(graph)
    content = tflite_metadata.aligned(metadata.tflite.content, before, after, metadata.descriptions)
    return TfliteMetadata(content, tuple(after["inputs"]), tuple(after["outputs"]))


def _drop_large(metadata: Metadata, to_onnx: bool) -> Iterator[str]:
    """Drop the parts that are too large, and yield their names."""
    if not to_onnx:
        yield from _drop_large_parts(metadata)
        return
    for key, value in list(metadata.properties.items()):
        size = len(value) if isinstance(value, str | bytes) else value.nbytes
        if size > MOST_IN_ONNX:
            yield f"the metadata {key!r} ({size} bytes)"
            del metadata.properties[key]
    if metadata.files is not None and metadata.files.nbytes > MOST_IN_ONNX:
        yield f"the associated files ({metadata.files.nbytes} bytes)"
        metadata.files = None


def _drop_large_parts(metadata: Metadata) -> Iterator[str]:
    """Drop the parts for which a .tflite file has no field and that are too large for an entry, and yield their
    names.
    """
    if sum(map(len, metadata.node_descriptions.values())) > MOST_OF_NODES:
        yield f"the documentation of {len(metadata.node_descriptions)} nodes"
        metadata.node_descriptions = {}
    if _length(metadata.node_properties) > MOST_OF_PROPERTIES:
        yield f"the metadata_props of {len(metadata.node_properties)} nodes"
        metadata.node_properties = {}
    if _length(metadata.tensor_properties) > MOST_OF_PROPERTIES:
        yield f"the metadata_props of {len(metadata.tensor_properties)} tensors"
        metadata.tensor_properties = {}


def _length(properties: Mapping[str, Mapping[str, str]]) -> int:
    """The number of characters of properties by owner."""
    return sum(len(key) + len(text) for texts in properties.values() for key, text in texts.items())


def _has_states(source: Model, graph: Graph) -> bool:
    """Whether all states that the metadata name are still inputs and outputs."""
    names = {v.name for v in graph.inputs} | set(graph.output_names)
    states = state_metadata.decode(source.metadata.properties, None)
    return bool(states) and all(name is None or name in names for s in states for name in (s.input, s.output))
