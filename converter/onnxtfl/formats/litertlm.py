"""The sections of a .litertlm file, LiteRT-LM's container of models, tokenizer and metadata.

    "LITERTLM", major, minor, patch (uint32 each), 4 bytes, end of the header (uint64) | header | sections

The header is a FlatBuffer (``schemas/litertlm_format.txt``) with the kind, the bytes and the properties of each
section; sections begin at multiples of 16 KB. Source: schema/core of LiteRT-LM 0.18.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.source import CONTAINER, Source
from onnxtfl.formats.tflite import schema
from onnxtfl.formats.tflite.decode import Decoded, Decoder
from onnxtfl.ir.data import SourceFile, SourcePart

MAJOR = 1
"""The major version of the format that is read."""
_HEADER = struct.Struct("<8s3I4xQ")
MODEL, WEIGHTS, METADATA = "TFLiteModel", "TFLiteWeights", "LlmMetadataProto"
SENTENCE_PIECE, HUGGING_FACE = "SP_Tokenizer", "HF_Tokenizer_Zlib"
"""The kinds of sections that are known here."""
_PREFIX, _DECODER = "tf_lite_", "prefill_decode"


@dataclass(frozen=True)
class Section:
    """A section: its kind, its bytes, and its properties."""

    kind: str
    content: SourcePart
    properties: Mapping[str, Any]

    @property
    def model_type(self) -> str:
        """What a TFLite model is for: "prefill_decode", "vision_encoder"; "" if the section has no such property."""
        return str(self.properties.get("model_type") or "").removeprefix(_PREFIX)


@dataclass(frozen=True)
class Container:
    """The contents of a .litertlm file: the version of its format, its properties, its sections in order."""

    version: str
    properties: Mapping[str, Any]
    sections: tuple[Section, ...]

    def models(self) -> list[Section]:
        """The TFLite models, that with prefill and decode first. Raises InvalidModelError if there is none."""
        found = [section for section in self.sections if section.kind == MODEL]
        if not found:
            kinds = ", ".join(section.kind for section in self.sections) or "none"
            raise InvalidModelError(f"no section has a TFLite model; its sections: {kinds}", code="E-FILE-004")
        return sorted(found, key=lambda section: section.model_type != _DECODER)


def read_container(file: SourceFile) -> Container:
    """The sections of a file. Raises InvalidModelError if it is cut off or malformed."""
    source = Source(file)
    magic, major, minor, patch, end = _HEADER.unpack(source.read(0, _HEADER.size))
    if magic != CONTAINER:
        source.fail("not a .litertlm file: it does not begin with LITERTLM")
    if major != MAJOR:
        source.fail(f"version {major}.{minor}.{patch} of the .litertlm format, only {MAJOR} can be read")
    source.check(_HEADER.size, max(end - _HEADER.size, 4))
    header = Source(SourcePart(file, _HEADER.size, end - _HEADER.size))
    table = Decoder(header).root(schema.table("LiteRTLMMetaData"))
    listed = (table["section_metadata"] or {}).get("objects") or ()
    system = (table["system_metadata"] or {}).get("entries")
    sections = tuple(_section(source, end, one) for one in listed)
    return Container(f"{major}.{minor}.{patch}", _properties(system), sections)


def _section(source: Source, header: int, table: Decoded) -> Section:
    start, end, kind = table["begin_offset"], table["end_offset"], str(table["data_type"])
    if not header <= start <= end:
        source.fail(f"malformed: a section {kind} from byte {start} to {end}")
    source.check(start, end - start)
    return Section(kind, SourcePart(source.file, start, end - start), _properties(table["items"]))


def _properties(pairs: Any) -> dict[str, Any]:
    """The values by key; None for those of a type that is not in the schema."""
    return {pair["key"] or "": pair["value"][1]["value"] if pair["value"] else None for pair in pairs or ()}
