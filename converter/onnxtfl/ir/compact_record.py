"""The part of a conversion's record that is written into its result: the mapping from the source's tensors to the
result's.

Entries that follow from equal names are left out, so that the record of a small model has about a hundred bytes. It is
JSON, compressed, with the fields

    source   digest of the names of the source's tensors (not of its weights)
    orders   by rank, the axis order of tensors that have the name of their source
    moved    [source, target, axis order, shape] of all others; the last two where they are not null
    own      names that are tensors of both models and not the same
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.dims import with_texts
from onnxtfl.ir.graph import Graph, Value
from onnxtfl.ir.origin import Origin
from onnxtfl.ir.record import TensorEntry
from onnxtfl.ir.types import rank_of

MOST_BYTES = 1 << 26
"""The largest record that is read; a hostile file could expand to more."""
Permutation = tuple[int, ...]
Ranks = Mapping[str, int | None]
"""The rank of each tensor by name, None where it is unknown."""


@dataclass(frozen=True)
class CompactRecord:
    """See the text of the module; `orders` has None for tensors that are not transposed."""

    source: str
    orders: Mapping[int, Permutation] = field(default_factory=dict)
    moved: tuple[TensorEntry, ...] = ()
    own: frozenset[str] = frozenset()

    def entries(self, source: Ranks, target: Ranks) -> list[TensorEntry]:
        """The entries for the tensors that exist in both models, those of equal names first."""
        equal = [name for name in target if name in source and name not in self.own]
        listed = [e for e in self.moved if e.source in source and e.target in target]
        return [TensorEntry(n, n, self._order(source[n], target[n])) for n in equal] + listed

    def _order(self, source: int | None, target: int | None) -> Permutation | None:
        rank = source if target is None else target
        return None if rank is None else self.orders.get(rank)


def tensor_names(graph: Graph) -> list[str]:
    """The names of the inputs and of the results of a graph, each once."""
    values = [*graph.inputs, *(result for node in graph.nodes for result in node.results)]
    return list(dict.fromkeys(value.name for value in values if value.name))


def digest(names: Iterable[str]) -> str:
    """A digest of names, whatever their order."""
    text = "\0".join(sorted(set(names)))
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def encode(graph: Graph, names: Mapping[Value, str], source: Iterable[str]) -> bytes:
    """The record of the main graph of a converted model.

    `names`: the written name of each value. `source`: the names of the tensors of the source.
    """
    source = frozenset(source)
    found = list(_found(graph, names))
    orders = _orders(found)
    equal = {name for name, rank, origin in found if _follows(name, rank, origin, orders)}
    others = [(name, origin) for name, rank, origin in found if not _follows(name, rank, origin, orders)]
    own = sorted({name for name, _, _ in _all(graph, names)} & source - equal)
    content = {
        "source": digest(source),
        "orders": {rank: order for rank, order in sorted(orders.items()) if order is not None},
        "moved": [[origin.tensor, name, *_rest(origin)] for name, origin in others if origin.tensor in source],
        "own": own,
    }
    text = json.dumps({k: v for k, v in content.items() if v}, separators=(",", ":"), ensure_ascii=False)
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 9)


def decode(data: bytes) -> CompactRecord:
    """The record that :func:`encode` wrote. Raises ValueError for other data."""
    try:
        content = json.loads(zlib.decompressobj().decompress(data, MOST_BYTES))
        orders = {int(rank): tuple(order) for rank, order in content.get("orders", {}).items()}
        moved = tuple(TensorEntry(*(_tuple(part) for part in entry)) for entry in content.get("moved", ()))
        return CompactRecord(content["source"], orders, moved, frozenset(content.get("own", ())))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the record of a conversion: {error}") from error


def _all(graph: Graph, names: Mapping[Value, str]) -> Iterator[tuple[str, int | None, Value]]:
    """The inputs and results of the main graph: name and rank of each."""
    for value in [*graph.inputs, *(result for node in graph.nodes for result in node.results)]:
        if value in names:
            yield names[value], rank_of(value.type), value


def _found(graph: Graph, names: Mapping[Value, str]) -> Iterator[tuple[str, int | None, Origin]]:
    """Name, rank and origin of each tensor, one for each of its origins."""
    for name, rank, value in _all(graph, names):
        for origin in value.origins:
            yield name, rank, origin


def _orders(found: Iterable[tuple[str, int | None, Origin]]) -> dict[int, Permutation | None]:
    """The commonest axis order, by rank, of tensors that have the name of their source."""
    counts: dict[int, Counter[Permutation | None]] = {}
    for name, rank, origin in found:
        if rank is not None and name == origin.tensor and origin.shape is None:
            counts.setdefault(rank, Counter())[origin.permutation] += 1
    return {rank: counter.most_common(1)[0][0] for rank, counter in counts.items()}


def _follows(name: str, rank: int | None, origin: Origin, orders: Mapping[int, Permutation | None]) -> bool:
    """Whether an entry follows from equal names."""
    expected = None if rank is None else orders.get(rank)
    return name == origin.tensor and origin.shape is None and origin.permutation == expected


def _rest(origin: Origin) -> list[Any]:
    shape = None if origin.shape is None else list(with_texts(origin.shape))
    order = None if origin.permutation is None else list(origin.permutation)
    return [order, shape] if shape is not None else [order] if order is not None else []


def _tuple(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part
