"""The metadata of a .tflite file: its description, the entries of its table `metadata`, and the archive at its end.

The entry "onnxtfl.onnx" is a JSON object with metadata of ONNX files for which TFLite has no field, under the names of
ONNX: graph_doc_string, producer_name, producer_version, domain, model_version, tensors and nodes (doc_string by tensor,
and by first result); graph_metadata_props, and tensor_metadata_props and node_metadata_props in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onnxtfl.formats.archive import find_archive
from onnxtfl.formats.source import Source
from onnxtfl.formats.tflite import tflite_metadata
from onnxtfl.formats.tflite.buffers import Buffers
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.metadata import Metadata, Producer, Property, TfliteMetadata, content_of
from onnxtfl.ir.model import Model

ONNX = "onnxtfl.onnx"
MAX_DECODED = 16 << 20
"""Bytes of the largest entry that is decoded."""
MIN_RUNTIME = "min_runtime_version"
"""The lowest TensorFlow release that has the versions of all ops, as `FlatBufferModel::GetMinimumRuntime` reads it."""
_MIN_RUNTIME_BYTES = 16
OF_THE_FILE = {
    *(MIN_RUNTIME, "CONVERSION_METADATA", "model_control_dependencies", "keep_stablehlo_constant"),
    *("debug_metadata", "buffer_location", "OfflineMemoryAllocation", "LiteRtStamp"),
}
"""Entries that describe one file: versions of its ops, indices of its ops and tensors, the converter that wrote it."""
_HEADER = 8
_INT64 = 1 << 63


def read_metadata(table: Mapping[str, Any], buffers: Buffers, main: Graph, source: Source) -> Metadata:
    """The metadata of a decoded Model table whose main graph is `main`; the contents of entries stay in the file."""
    contents = {e["name"] or "": buffers.raw(e["buffer"]) for e in table["metadata"] or ()}
    if sum(content.nbytes for content in contents.values()) > source.size:
        source.fail("malformed: its entries of metadata refer to the same bytes too often")
    entries: dict[str, Property] = dict(contents.items())
    metadata = Metadata(table["description"] or "", properties=entries, files=find_archive(source.file, _HEADER))
    sides = sides_of(main)
    _take_tflite(metadata, sides)
    _take_onnx(metadata)
    _drop_made(metadata, sides)
    return metadata


def entries_of(model: Model) -> dict[str, Property]:
    """The entries of the table `metadata` for `model`; TFLite Metadata is created if tensors have descriptions."""
    metadata, sides = model.metadata, sides_of(model.main)
    found = dict(metadata.properties)
    content = tflite_metadata.made(metadata.description, sides, metadata.descriptions)
    if metadata.tflite is not None:
        content = metadata.tflite.content
    if content is not None:
        found[tflite_metadata.KEY] = content
    tree = tflite_metadata.decode(content) if content is not None else None
    described = tflite_metadata.descriptions_of(tree, sides) if tree is not None else {}
    onnx = _onnx_fields(metadata, described)
    return found | ({ONNX: json.dumps(onnx, ensure_ascii=False)} if onnx else {})


def of_the_file(lowest_runtime: str) -> dict[str, bytes]:
    """The entries that describe the file; none where the runtime is unknown. A NUL has to end the text."""
    content = lowest_runtime.encode().ljust(_MIN_RUNTIME_BYTES, b"\0")
    return {MIN_RUNTIME: content} if lowest_runtime else {}


def sides_of(graph: Graph) -> dict[str, list[str]]:
    """The names of the "inputs" and "outputs"."""
    return {"inputs": [v.name or "" for v in graph.inputs], "outputs": list(graph.names_of_outputs)}


def _decodable(value: Property | None) -> bytes | None:
    """The bytes of a property; None if it is absent or too large to be decoded."""
    if value is None or (not isinstance(value, str | bytes) and value.nbytes > MAX_DECODED):
        return None
    return content_of(value)


def _take_tflite(metadata: Metadata, sides: Mapping[str, Sequence[str]]) -> None:
    """Decode TFLite Metadata; malformed metadata stays a property."""
    content = _decodable(metadata.properties.get(tflite_metadata.KEY))
    tree = tflite_metadata.decode(content) if content is not None else None
    if content is None or tree is None:
        return
    del metadata.properties[tflite_metadata.KEY]
    metadata.tflite = TfliteMetadata(content, tuple(sides["inputs"]), tuple(sides["outputs"]))
    metadata.descriptions = tflite_metadata.descriptions_of(tree, sides)


def _drop_made(metadata: Metadata, sides: Mapping[str, Sequence[str]]) -> None:
    """Drop TFLite Metadata that the writer recreates from the descriptions."""
    made = tflite_metadata.made(metadata.description, sides, metadata.descriptions)
    if metadata.tflite is not None and metadata.tflite.content == made:
        metadata.tflite = None


def _onnx_fields(metadata: Metadata, described: Mapping[str, str]) -> dict[str, Any]:
    """The metadata for which TFLite has no field; `described`: the descriptions of tensors in TFLite Metadata."""
    producer = metadata.producer
    own = {name: text for name, text in metadata.descriptions.items() if described.get(name) != text}
    fields = {
        "graph_doc_string": metadata.graph_description,
        "producer_name": producer.name,
        "producer_version": producer.version,
        "domain": producer.domain,
        "model_version": producer.model_version,
        "tensors": own,
        "nodes": metadata.node_descriptions,
        "graph_metadata_props": metadata.graph_properties,
        "tensor_metadata_props": metadata.tensor_properties,
        "node_metadata_props": metadata.node_properties,
    }
    return {key: value for key, value in fields.items() if value}


def _take_onnx(metadata: Metadata) -> None:
    """Set the fields of the entry "onnxtfl.onnx"; a malformed entry stays a property."""
    content = _decodable(metadata.properties.get(ONNX))
    if content is None:
        return
    try:
        found = json.loads(content)
        name, version, domain, graph = (
            _text(found.get(key, "")) for key in ("producer_name", "producer_version", "domain", "graph_doc_string")
        )
        number = int(found.get("model_version", 0))
        tensors, nodes, own = (_texts(found.get(key, {})) for key in ("tensors", "nodes", "graph_metadata_props"))
        of_tensors, of_nodes = (
            {_text(k): _texts(v) for k, v in found.get(key, {}).items()}
            for key in ("tensor_metadata_props", "node_metadata_props")
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        return
    metadata.graph_description = graph
    metadata.producer = Producer(name, version, domain, number if -_INT64 <= number < _INT64 else 0)
    metadata.descriptions |= tensors
    metadata.node_descriptions = nodes
    metadata.graph_properties, metadata.tensor_properties, metadata.node_properties = own, of_tensors, of_nodes
    del metadata.properties[ONNX]


def _texts(found: Mapping[str, Any]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in found.items()}


def _text(value: Any) -> str:
    """`value` as text that is valid UTF-8."""
    return str(value).encode(errors="replace").decode()
