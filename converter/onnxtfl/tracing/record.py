"""The record of a conversion between two models: in the metadata of the result, or in a file beside it.

A record belongs to a pair if the digest of the source's tensor names is that of the other model. Where some of these
were renamed or removed since, at least half of the tensors that it lists must exist in both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxtfl.formats import files
from onnxtfl.ir.compact_record import MOST_BYTES, CompactRecord, decode, digest, tensor_names
from onnxtfl.ir.metadata import RECORD, content_of
from onnxtfl.ir.record import Record, TensorEntry
from onnxtfl.tracing.matches import Match, by_name, by_record
from onnxtfl.tracing.trace import InnerModel

SUFFIX = ".record.json"
"""The suffix of a file beside the result, with the content of `Record.to_json`."""
_SHARE = 0.5


@dataclass(frozen=True)
class PairRecord:
    """The tensors that correspond; `back`: whether the second model was converted to the first. `where`: for
    messages.
    """

    entries: list[TensorEntry]
    back: bool
    where: str


def known_matches(a: InnerModel, b: InnerModel, entries: Sequence[TensorEntry]) -> tuple[list[Match], str, bool]:
    """The tensors that correspond, by a record or else by their names; how, for messages; and whether by a record.

    `entries`: the record of the conversion of `a` to `b`, empty to look for one.
    """
    if entries:
        return by_record(a, b, entries, back=False), "the record of the conversion", True
    record = record_of_pair(a, b)
    if record is not None:
        return by_record(a, b, record.entries, record.back), record.where, True
    return by_name(a, b), "equal names", False


def record_of_pair(a: InnerModel, b: InnerModel) -> PairRecord | None:
    """The record of the conversion of `a` to `b`, or of `b` to `a`; None if neither is known."""
    pairs = ((a, b, False), (b, a, True))
    for source, target, back in pairs:
        if found := _beside(source, target):
            return PairRecord(found, back, f"the record beside the {_which(back)} model")
    records = [(*pair, record) for pair in pairs if (record := _inside(pair[1])) is not None]
    for exact in (True, False):
        for source, target, back, record in records:
            entries = _entries(record, source, target)
            if _is_of(record, source) if exact else _fits(entries, source, target):
                return PairRecord(entries, back, f"the record in the metadata of the {_which(back)} model")
    return None


def _which(back: bool) -> str:
    return "first" if back else "second"


def _inside(target: InnerModel) -> CompactRecord | None:
    """The record in the metadata of `target`; None if there is none, or it is malformed."""
    content = files.read(target.path).metadata.properties.get(RECORD)
    try:
        return None if content is None else decode(content_of(content))
    except ValueError:
        return None


def _entries(record: CompactRecord, source: InnerModel, target: InnerModel) -> list[TensorEntry]:
    ranks = [{v.name: model.rank(i) for i, v in enumerate(model.values) if v.name} for model in (source, target)]
    return record.entries(*ranks)


def _is_of(record: CompactRecord, source: InnerModel) -> bool:
    return record.source == digest(tensor_names(source.graph))


def _fits(entries: list[TensorEntry], source: InnerModel, target: InnerModel) -> bool:
    """Whether at least half of the results of one of the models are known."""
    known = {entry.target for entry in entries}
    results = [len([i for i in model.changing if model.values[i].name]) for model in (source, target)]
    return sum(target.values[i].name in known for i in target.changing) >= max(1, _SHARE * min(results))


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
