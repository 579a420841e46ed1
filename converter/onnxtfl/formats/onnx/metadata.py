"""The metadata of an ONNX model: documentation of the model, its values and nodes, its producer, metadata_props."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import GraphProto, ModelProto

from onnxtfl.formats.onnx.names import text_of
from onnxtfl.ir.metadata import Metadata, Producer, Property, as_text, from_text

PRODUCER = "onnxtfl"
"""The producer of a model whose source has none."""


def read_metadata(model: ModelProto) -> Metadata:
    """The metadata of `model`; of two properties with one name the last."""
    return Metadata(
        description=text_of(model.doc_string),
        graph_description=text_of(model.graph.doc_string),
        producer=_producer(model),
        descriptions=dict(_described(model.graph)),
        node_descriptions={text_of(n.output[0]): text_of(n.doc_string) for n in model.graph.node if _is_described(n)},
        properties={text_of(entry.key): from_text(text_of(entry.value)) for entry in model.metadata_props},
    )


def _producer(model: ModelProto) -> Producer:
    name, version, domain = map(text_of, (model.producer_name, model.producer_version, model.domain))
    return Producer(name, version, domain, int(model.model_version), int(model.ir_version))


def _described(graph: GraphProto) -> Iterator[tuple[str, str]]:
    """(tensor, documentation) of each value that has one."""
    for infos in (graph.value_info, graph.input, graph.output):
        yield from ((text_of(info.name), text_of(info.doc_string)) for info in infos if info.doc_string)


def _is_described(node: object) -> bool:
    return bool(getattr(node, "doc_string", "")) and bool(getattr(node, "output", ()))


def fill(proto: ModelProto, metadata: Metadata, late: Mapping[str, Property]) -> None:
    """Set the fields of `proto` but for its graph; `late`: properties in addition to those of `metadata`."""
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
    for key, content in {**metadata.properties, **late}.items():
        proto.metadata_props.add(key=key, value=as_text(content))
