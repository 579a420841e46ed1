"""The metadata of an ONNX model: its producer, documentation and metadata_props of the model, its values and nodes.

TFLite Metadata is the property "TFLITE_METADATA", its bytes as a data URI, and "tflite.metadata", the same as JSON to
be read by people (descriptions, normalization, labels); "tflite.files" is the archive of associated files, a data URI.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, StringStringEntryProto, ValueInfoProto

from onnxtfl.formats.archive import archive_bytes, archive_of, texts
from onnxtfl.formats.onnx.names import text_of
from onnxtfl.formats.tflite import tflite_metadata
from onnxtfl.ir.metadata import Metadata, Producer, Property, Texts, TfliteMetadata, as_text, content_of, from_text

READABLE, FILES = "tflite.metadata", "tflite.files"
PRODUCER = "onnxtfl"
"""The producer of a model whose source has none."""


def read_metadata(model: ModelProto) -> Metadata:
    """The metadata of `model`; of several properties with the same name, the last."""
    metadata = Metadata(
        description=text_of(model.doc_string),
        graph_description=text_of(model.graph.doc_string),
        producer=_producer(model),
        descriptions=dict(_described(model.graph)),
        node_descriptions={text_of(n.output[0]): text_of(n.doc_string) for n in model.graph.node if _is_described(n)},
        properties={text_of(entry.key): from_text(text_of(entry.value)) for entry in model.metadata_props},
        graph_properties=_texts(model.graph),
        tensor_properties={text_of(info.name): _texts(info) for info in _infos(model.graph) if info.metadata_props},
        node_properties={
            text_of(n.output[0]): _texts(n) for n in model.graph.node if n.metadata_props and len(n.output)
        },
    )
    _take_tflite(metadata)
    return metadata


def _take_tflite(metadata: Metadata) -> None:
    """Set TFLite Metadata and associated files from properties; malformed ones stay properties."""
    properties = metadata.properties
    content, files = properties.get(tflite_metadata.KEY), properties.get(FILES)
    archive = archive_of(files) if isinstance(files, bytes) else None
    if archive is not None:
        metadata.files = archive
        del properties[FILES]
        if content is None:
            properties.pop(READABLE, None)
    if isinstance(content, bytes) and tflite_metadata.decode(content) is not None:
        readable = properties.pop(READABLE, "")
        inputs, outputs = (_tensors(readable, side) for side in ("inputs", "outputs"))
        metadata.tflite = TfliteMetadata(content, inputs, outputs)
        del properties[tflite_metadata.KEY]


def _tensors(text: Property, side: str) -> tuple[str, ...]:
    """The names of the tensors that TFLite Metadata was written for; empty if they are unknown."""
    try:
        return tuple(str(entry["tensor"]) for entry in json.loads(content_of(text))[side])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def _producer(model: ModelProto) -> Producer:
    name, version, domain = map(text_of, (model.producer_name, model.producer_version, model.domain))
    return Producer(name, version, domain, int(model.model_version), int(model.ir_version))


def _described(graph: GraphProto) -> Iterator[tuple[str, str]]:
    """(tensor, documentation) of each value that has one."""
    return ((text_of(info.name), text_of(info.doc_string)) for info in _infos(graph) if info.doc_string)


def _infos(graph: GraphProto) -> Iterator[ValueInfoProto]:
    for infos in (graph.value_info, graph.input, graph.output):
        yield from infos


def _texts(proto: GraphProto | NodeProto | ValueInfoProto) -> Texts:
    return {text_of(entry.key): text_of(entry.value) for entry in proto.metadata_props}


def documented(text: str, properties: Mapping[str, str] | None) -> dict[str, Any]:
    """The fields `doc_string` and `metadata_props` (since IR version 10) of a graph, node or value, unless they are
    empty.
    """
    entries = [StringStringEntryProto(key=key, value=value) for key, value in (properties or {}).items()]
    return ({"doc_string": text} if text else {}) | ({"metadata_props": entries} if entries else {})


def _is_described(node: object) -> bool:
    return bool(getattr(node, "doc_string", "")) and bool(getattr(node, "output", ()))


def fill(proto: ModelProto, metadata: Metadata, late: Mapping[str, Property]) -> None:
    """Set the fields of `proto` except its graph; `late`: additional properties."""
    producer = metadata.producer
    fields = {
        "doc_string": metadata.description,
        "producer_name": producer.name or PRODUCER,
        "producer_version": producer.version,
        "domain": producer.domain,
        "model_version": producer.model_version,
    }
    for name, value in fields.items():
        if value:  # an empty field would be written
            setattr(proto, name, value)
    for key, content in {**_properties(metadata), **late}.items():
        proto.metadata_props.add(key=key, value=as_text(content))


def _properties(metadata: Metadata) -> dict[str, Property]:
    """All properties, including those with TFLite Metadata and associated files."""
    found, described = dict(metadata.properties), metadata.tflite
    files = texts(metadata.files) if metadata.files is not None else {}
    tree = tflite_metadata.decode(described.content) if described is not None else None
    if described is not None and tree is not None:
        sides = {"inputs": described.inputs, "outputs": described.outputs}
        found[READABLE] = json.dumps(tflite_metadata.readable(tree, sides, files), ensure_ascii=False)
    elif files:
        found[READABLE] = json.dumps({"files": files}, ensure_ascii=False)
    if described is not None:
        found[tflite_metadata.KEY] = described.content
    if metadata.files is not None:
        found[FILES] = archive_bytes(metadata.files)
    return found
