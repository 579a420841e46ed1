"""Damaged models of both formats: a mutant depends on its seed only (and on the seed models, which are listed here).

A mutant is a seed model with one to three changes, most at one level: bytes (`mutants_bytes`), messages (protobuf
fields and the encoding around them, FlatBuffer tables), or the graph (edges, nodes, ops, axes, opset versions;
constants, options, quantization and the links of subgraphs: `mutants_onnx_values`, `mutants_tflite_values`).
"""

from __future__ import annotations

import random
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from tests.conformance.cases import load_cases
from tests.conformance.tflite_cases import ARCHIVE
from tests.fuzz import mutants_bytes, mutants_onnx, mutants_tflite
from tests.fuzz.onnx_samples import samples
from tests.fuzz.test_tflite_fuzz import sample
from tests.models.corpus import CORPUS

_LARGEST = 20_000
"""Bytes of a seed model."""
_OTHER_WAY = 0.35
"""Share of the seed models that are results of a conversion from the other format."""
_SHARES = {"bytes": 2, "messages": 3, "graph": 5}
_MIXED = 0.3
"""Share of the second and third changes that are at another level than the first."""
Random = random.Random
Other = Callable[[], bytes]
"""Returns another model of the same format."""
Change = Callable[[bytes, Other, Random], bytes]


@dataclass(frozen=True)
class Mutant:
    """A damaged model: ``format`` is "onnx" or "tflite", ``level`` the kind of change, ``origin`` the seed model."""

    format: str
    level: str
    origin: str
    data: bytes


_CHANGES: dict[tuple[str, str], Change] = {
    ("onnx", "bytes"): mutants_bytes.changed,
    ("tflite", "bytes"): mutants_bytes.changed,
    ("onnx", "messages"): mutants_onnx.changed_messages,
    ("tflite", "messages"): mutants_tflite.changed_tables,
    ("onnx", "graph"): mutants_onnx.changed_graph,
    ("tflite", "graph"): mutants_tflite.changed_graph,
}


def mutant(seed: int) -> Mutant:
    """The mutant of a seed."""
    chance = Random(seed)
    format_ = chance.choice(("onnx", "tflite"))
    level = _level(chance)
    origin, data = seed_model(format_, chance)
    for number in range(chance.choice((1, 1, 1, 2, 2, 3))):
        at = _level(chance) if number and chance.random() < _MIXED else level
        data = _CHANGES[format_, at](data, lambda: seed_model(format_, chance)[1], chance)
    return Mutant(format_, level, origin, data)


def _level(chance: Random) -> str:
    return chance.choices(list(_SHARES), list(_SHARES.values()))[0]


def seed_model(format_: str, chance: Random) -> tuple[str, bytes]:
    """Name and bytes of a seed model."""
    other = "tflite" if format_ == "onnx" else "onnx"
    if chance.random() < _OTHER_WAY or not seeds(format_)[1:]:
        name, data = chance.choice(seeds(other))
        if (found := _converted(other, name, data)) is not None:
            return f"converted {name}", found
    return chance.choice(seeds(format_))


@cache
def _converted(source: str, name: str, data: bytes) -> bytes | None:
    """A model in the other format, None where it does not convert."""
    import onnxtfl

    convert = onnxtfl.onnx_to_tflite if source == "onnx" else onnxtfl.tflite_to_onnx
    try:
        return convert(data, check=False, load=False).data
    except onnxtfl.OnnxtflError:
        return None


@cache
def seeds(format_: str) -> Sequence[tuple[str, bytes]]:
    """Name and bytes of all small models of the tests, and of the corpus where it exists."""
    found = _onnx_seeds() if format_ == "onnx" else _tflite_seeds()
    return sorted((name, data) for name, data in found.items() if len(data) <= _LARGEST)


def _onnx_seeds() -> dict[str, bytes]:
    found = {case.name: case.model for case in load_cases(sequences=True)}
    found |= {f"frozen {case.name}": case.model for case in load_cases("frozen")}
    return found | {f"sample {name}": data for name, data in samples().items()} | _corpus("onnx")


def _tflite_seeds() -> dict[str, bytes]:
    found = {"sample": sample(), **_corpus("tflite")}
    if ARCHIVE.exists():
        with zipfile.ZipFile(ARCHIVE) as files:
            found |= {name: files.read(name) for name in files.namelist() if name.endswith(".tflite")}
    return found


def _corpus(suffix: str) -> dict[str, bytes]:
    paths = [path for path in CORPUS.rglob(f"*.{suffix}") if path.stat().st_size <= _LARGEST]
    return {str(path.relative_to(CORPUS)): path.read_bytes() for path in paths}
