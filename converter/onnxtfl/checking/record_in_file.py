"""The record of a conversion of one model of a pair to the other: in the metadata of the result, or beside it.

A record belongs to a pair if the digest of the source's tensor names is that of the other model. Where some of these
were renamed or removed since, at least half of the tensors that it lists must exist in both.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from onnxtfl.checking.inner_values import InnerModel
from onnxtfl.formats import files
from onnxtfl.ir.compact_record import MOST_BYTES, CompactRecord, decode, digest, tensor_names
from onnxtfl.ir.metadata import RECORD, content_of
from onnxtfl.ir.record import Record, TensorEntry

SUFFIX = ".record.json"
"""A file beside the result: what `Record.to_json` returns."""
_SHARE = 0.5


@dataclass(frozen=True)
class PairRecord:
    """The tensors that correspond; `back`: of the conversion of the second model to the first. `where`: in words."""

    entries: list[TensorEntry]
    back: bool
    where: str


def record_of_pair(a: InnerModel, b: InnerModel) -> PairRecord | None:
    """The record of the conversion of `a` to `b`, or of `b` to `a`; None where neither is known."""
    for source, target, back in ((a, b, False), (b, a, True)):
        for found, where in ((_beside(source, target), "beside"), (_inside(source, target), "in the metadata of")):
            if found:
                return PairRecord(found, back, f"the record {where} the {'first' if back else 'second'} model")
    return None


def _inside(source: InnerModel, target: InnerModel) -> list[TensorEntry]:
    """The entries of the record in the metadata of `target`; none where it is of another source, or malformed."""
    content = files.read(target.path).metadata.properties.get(RECORD)
    if content is None:
        return []
    try:
        record = decode(content_of(content))
    except ValueError:
        return []
    ranks = [{v.name: model.rank(i) for i, v in enumerate(model.values) if v.name} for model in (source, target)]
    entries = record.entries(*ranks)
    return entries if record.source == digest(tensor_names(source.graph)) or _fits(record, entries, target) else []


def _fits(record: CompactRecord, entries: list[TensorEntry], target: InnerModel) -> bool:
    """Whether at least half of the tensors exist in both models."""
    results = [i for i in target.changing if target.values[i].name]
    known = {entry.target for entry in entries}
    return sum(target.values[i].name in known for i in results) >= _SHARE * min(len(results), len(record.moved) or 1)


def _beside(source: InnerModel, target: InnerModel) -> list[TensorEntry]:
    """The entries of the file beside `target`, as far as their tensors exist."""
    path = Path(f"{target.path}{SUFFIX}")
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return []
        record = Record.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, json.JSONDecodeError):
        return []
    names = [{v.name for v in model.values} for model in (source, target)]
    found = [entry for entry in record.tensors if entry.source in names[0] and entry.target in names[1]]
    return found if len(found) >= _SHARE * len(record.tensors) else []
