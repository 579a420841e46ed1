"""The targets that .tflite models are written for: a table for each in ``targets/``, described in ``tflite.toml``.

A target is also a target of its parent's kind, and so on: these are its chain.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

from onnxtfl.schemas.sections import section, tables_in

from onnxtfl.dataclass import dataclass

FOLDER, ROOT = "targets", "tflite"
_INHERITED = (
    *("min_runtime", "fallback", "shares_cpu", "weights", "loops", "own_arithmetic", "half", "widens", "folds_all"),
    *("largest_integer", "most_axes", "accelerator", "runtime", "advice"),
)
FEATURES = ("open_sizes", "uint8_kernels", "hybrid_kernels", "int64", "float16", "quantized")
"""The features that a target may lack."""


@dataclass(frozen=True)
class TargetTable:
    """The section [target] of a table, with what it has from its parent; the keys are described in ``tflite.toml``.

    `name`: that of ``--target`` and of its file. `parent`: None for the TFLite runtimes themselves.
    """

    name: str
    title: str
    help: str
    rules: str
    parent: TargetTable | None = None
    fallback: str | None = None
    shares_cpu: bool = False
    has_other_ops: bool = True
    lacks: frozenset[str] = frozenset()
    weights: Sequence[str] = ()
    loops: Literal["fast", "small", "none"] = "fast"
    own_arithmetic: bool = False
    half: bool = False
    widens: bool = False
    folds_all: bool = False
    largest_integer: int | None = None
    most_axes: int | None = None
    min_runtime: str | None = None
    accelerator: str | None = None
    delegate: str | None = None
    leaving: float = 1.0
    crossing: float = 0.0
    runtime: str | None = None
    measured: str | None = None
    advice: str | None = None

    @property
    def file(self) -> str:
        """The file of the table, in this package."""
        return f"{FOLDER}/{self.name}.toml"

    @property
    def chain(self) -> tuple[TargetTable, ...]:
        """This table, then its parent and so on, the narrowest first."""
        return (self, *(self.parent.chain if self.parent is not None else ()))

    @property
    def narrowed(self) -> tuple[str, ...]:
        """The names of the targets that narrow what TFLite's kernels accept, from wide to narrow."""
        return tuple(table.name for table in reversed(self.chain[:-1]))


_KEYS = {one.name for one in fields(TargetTable)} - {"name"}


@functools.cache
def target_tables() -> Mapping[str, TargetTable]:
    """All targets by name, each after its parent. Raises ValueError for an invalid table."""
    heads = {name: section("target", f"{FOLDER}/{name}.toml") for name in tables_in(FOLDER)}
    found = {ROOT: _table(ROOT, heads.pop(ROOT), None, heads)}
    while left := [name for name in heads if name not in found]:
        ready = [name for name in left if heads[name].get("parent", ROOT) in found]
        if not ready:
            raise ValueError(f"schemas/{FOLDER}: {', '.join(left)}: there is no such parent, or each is one of these")
        found |= {name: _table(name, heads[name], found[heads[name].get("parent", ROOT)], heads) for name in ready}
    return found


def chosen_targets() -> Mapping[str, TargetTable]:
    """The targets that users choose from: those that are no delegate of another."""
    found = target_tables()
    delegates = {table.delegate for table in found.values()}
    return {name: table for name, table in found.items() if name not in delegates}


def _table(name: str, head: Mapping[str, Any], parent: TargetTable | None, others: Collection[str] = ()) -> TargetTable:
    lacks = frozenset(head.get("lacks", "").split())
    if wrong := [*(head.keys() - _KEYS), *lacks.difference(FEATURES)]:
        raise ValueError(f"schemas/{FOLDER}/{name}.toml: [target] has no {', '.join(sorted(wrong))}")
    inherited = {} if parent is None else {key: getattr(parent, key) for key in _INHERITED}
    given = {"rules": name, **inherited, **head, "name": name, "parent": parent}
    if given.get("fallback") not in (None, ROOT, *others):
        raise ValueError(f"schemas/{FOLDER}/{name}.toml: there is no target {given['fallback']} to fall back to")
    if given.get("delegate") not in (None, *others):
        raise ValueError(f"schemas/{FOLDER}/{name}.toml: there is no delegate {given['delegate']}")
    given["lacks"] = lacks | (frozenset() if parent is None else parent.lacks)
    given["weights"] = head["weights"].split() if "weights" in head else given["weights"]
    return TargetTable(**given)
