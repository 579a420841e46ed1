"""TFLite Metadata (the FlatBuffer M001): decoding, updates for changed inputs, creation from descriptions, JSON.

It describes the inputs and outputs of a model in their order. Its files (labels, vocabularies) are in the archive of
associated files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.source import Source
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.decode import Decoded, Decoder
from onnxtfl.formats.tflite.encode import Encoder
from onnxtfl.ir.data import SourceBytes
from onnxtfl.ir.metadata import TfliteMetadata

KEY = "TFLITE_METADATA"
"""The name of the entry in the table `metadata` of the model."""
IDENTIFIER = b"M001"
_VERSION = "1.0.0"
_LABELS = ("TENSOR_AXIS_LABELS", "TENSOR_VALUE_LABELS")
_MOST_LABELS = 10_000
_SIDES = {"inputs": "input_tensor_metadata", "outputs": "output_tensor_metadata"}


def decode(content: bytes) -> Decoded | None:
    """The ModelMetadata table; None if `content` is malformed."""
    if content[4:8] != IDENTIFIER:
        return None
    try:
        return Decoder(Source(SourceBytes(content, KEY)), constants=False).root(schema.table("ModelMetadata"))
    except InvalidModelError:
        return None


def encode(tree: Mapping[str, Any]) -> bytes:
    """The FlatBuffer of a ModelMetadata table."""
    encoder = Encoder()
    encoder.root(schema.table("ModelMetadata"), tree, IDENTIFIER)
    return bytes(encoder.out)


def made(description: str, sides: Mapping[str, Sequence[str]], descriptions: Mapping[str, str]) -> bytes | None:
    """Return metadata for inputs and outputs with these names; None if none has a description."""
    if not any(name in descriptions for names in sides.values() for name in names):
        return None
    graph = {
        field: [{"name": name, "description": descriptions.get(name)} for name in sides[side]]
        for side, field in _SIDES.items()
    }
    return encode({"description": description or None, "subgraph_metadata": [graph], "min_parser_version": _VERSION})


def descriptions_of(tree: Decoded, sides: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The description of each tensor that has one."""
    found: dict[str, str] = {}
    for side, names in sides.items():
        for name, entry in zip(names, _entries(tree, side), strict=False):
            if entry["description"]:
                found.setdefault(name, entry["description"])
    return found


def aligned(
    content: bytes,
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
    descriptions: Mapping[str, str],
) -> bytes:
    """The metadata with an entry for each input and output of the graph, in order, and the descriptions given.

    `before`, `after`: tensor names of the model for which it was written, and of the graph. If all are renamed, entries
    stay in their places. `content` itself if nothing changes, or if it is malformed.
    """
    tree = decode(content)
    if tree is None:
        return content
    known = descriptions_of(tree, before)
    changed = False
    for side, names in after.items():
        old, entries = before.get(side) or (), _entries(tree, side)
        if not entries:
            continue
        places = _places(old, names, len(entries))
        fresh: list[Decoded] = []
        for name, place in zip(names, places, strict=True):
            entry: Decoded = dict(entries[place]) if place is not None else {"name": name}
            was = known.get(old[place]) if place is not None and place < len(old) else None
            if descriptions.get(name) != was:
                entry["description"] = descriptions.get(name)
            fresh.append(entry)
        changed |= fresh != entries
        tree["subgraph_metadata"][0][_SIDES[side]] = fresh
    return encode(tree) if changed else content


def _places(old: Sequence[str], names: Sequence[str], count: int) -> list[int | None]:
    """For each name the index of its entry, None for a new tensor."""
    first = {name: place for place, name in reversed([*enumerate(old[:count])])}
    found = [first.get(name) for name in names]
    if all(place is None for place in found):
        return [k if k < count and len(names) == count else None for k in range(len(names))]
    return found


def _entries(tree: Decoded, side: str) -> list[Decoded]:
    """The TensorMetadata tables of the first subgraph."""
    graphs: list[Decoded] = tree["subgraph_metadata"] or [{}]
    return graphs[0].get(_SIDES[side]) or []


def readable(tree: Decoded, sides: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> dict[str, Any]:
    """The metadata as JSON values: those of the model, then "inputs" and "outputs" with the name of each "tensor".

    `files`: the associated files that are text; the lines of label files are "labels" of the tensor.
    """
    graphs = tree["subgraph_metadata"] or []
    found: dict[str, Any] = _plain({key: value for key, value in tree.items() if key != "subgraph_metadata"})
    if graphs:
        found |= {"graph": _plain({k: v for k, v in graphs[0].items() if k not in _SIDES.values()})}
    for side, names in sides.items():
        entries = _entries(tree, side)
        found[side] = [
            {"tensor": name, **(_tensor(entries[k], files) if k < len(entries) else {})} for k, name in enumerate(names)
        ]
    return {key: value for key, value in found.items() if value}


def normalizations(metadata: TfliteMetadata | None) -> Iterator[str]:
    """Return the normalization of inputs as text, one line per input that declares it."""
    tree = decode(metadata.content) if metadata is not None else None
    for name, entry in zip(metadata.inputs if metadata else (), _entries(tree, "inputs") if tree else (), strict=False):
        found = _tensor(entry, {}).get("normalization")
        if found:
            yield f"{name}  mean {_numbers(found.get('mean'))}, deviation {_numbers(found.get('std'))}"


def _numbers(values: Sequence[float] | None) -> str:
    return ", ".join(f"{value:g}" for value in values or ())


def _tensor(entry: Decoded, files: Mapping[str, str]) -> dict[str, Any]:
    """One TensorMetadata as JSON; normalization and labels are separate fields."""
    found: dict[str, Any] = _plain(entry)
    units = found.pop("process_units", [])
    for unit in units:
        options = dict(unit.get("options") or {})
        if options.pop("kind", "") == "NormalizationOptions":
            found["normalization"] = options
    others = [u for u in units if (u.get("options") or {}).get("kind") != "NormalizationOptions"]
    if others:
        found["process_units"] = others
    for file in entry["associated_files"] or ():
        text = files.get(file["name"] or "")
        if file["type"] in _LABELS and text is not None and "labels" not in found:
            found["labels"] = text.splitlines()[:_MOST_LABELS]
    return found


def _plain(value: Any) -> Any:
    """A decoded table as JSON values, without absent fields; floats as short as they are exact in float32."""
    if isinstance(value, dict):
        pairs = ((key, _plain(item)) for key, item in value.items() if not key.endswith("_type") or key in _TYPES)
        return {key: item for key, item in pairs if item not in (None, "", [])}
    if isinstance(value, tuple) and value and isinstance(value[0], schema.Table):
        return {"kind": value[0].name, **_plain(value[1])}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return float(str(np.float32(value))) if isinstance(value, float) else value


_TYPES = ("coordinate_type",)
"""Fields whose name ends like that of a union's number."""
