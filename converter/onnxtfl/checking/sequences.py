"""Inputs and outputs of sequence and optional type as the tensors that the other model has in their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onnxtfl.checking.describe import TensorInfo
from onnxtfl.checking.match import MismatchError

Kind = Literal["tensor", "list", "stack", "absent"]


@dataclass(frozen=True)
class Slot:
    """An input or output of a model as tensors: itself, the elements of a sequence, one of all elements, or nothing."""

    name: str
    kind: Kind = "tensor"
    count: int = 1

    def joined(self, tensors: Sequence[Any]) -> Any:
        """The value of the input for these tensors."""
        if self.kind == "list":
            return list(tensors)
        if self.kind == "stack":
            return list(tensors[0])
        return tensors[0] if tensors else None

    def split(self, value: Any) -> list[Any]:
        """The tensors of a value of the output; MismatchError where there are more or fewer."""
        if self.kind == "stack":
            return [np.stack(value)]
        parts = value if self.kind == "list" else [] if self.kind == "absent" and value is None else [value]
        if len(parts) != self.count:
            raise MismatchError(f"{self.name!r} has {len(parts)} elements, the converted model {self.count}")
        return list(parts)


def slots_of(infos: Sequence[TensorInfo], others: Sequence[TensorInfo]) -> tuple[list[Slot], tuple[TensorInfo, ...]]:
    """The slots of the inputs (or outputs) `infos`, and their tensors, named as those of the other model `others`.

    Those that are no tensors there either are left as they are.
    """
    names, left = {info.name for info in others}, {info.name for info in others if info.kind != "tensor"}
    slots, tensors = list[Slot](), list[TensorInfo]()
    for info in infos:
        if info.name in left:
            slots.append(Slot(info.name))
            tensors.append(info)
            continue
        slot = Slot(info.name) if info.kind == "tensor" else _slot(info, names)
        slots.append(slot)
        parts = [info.name] if slot.kind != "list" else [f"{info.name}_{i}" for i in range(slot.count)]
        shape = (None, *info.shape) if slot.kind == "stack" and info.shape is not None else info.shape
        tensors += [replace(info, name=part, kind="tensor", shape=shape) for part in parts[: slot.count]]
    return slots, tuple(tensors)


def _slot(info: TensorInfo, names: set[str]) -> Slot:
    """The slot of a sequence or optional by the names of its elements in the other model."""
    count = 0
    while f"{info.name}_{count}" in names:
        count += 1
    if info.kind == "optional":
        return Slot(info.name) if info.name in names else Slot(info.name, "absent", 0)
    if info.name in names and not count:
        return Slot(info.name, "stack")
    return Slot(info.name, "list", count) if count or info.kind == "sequence" else Slot(info.name, "absent", 0)


def joined(slots: Sequence[Slot], tensors: Sequence[Any]) -> list[Any]:
    """The values of all inputs for the tensors of all of them."""
    values, start = [], 0
    for slot in slots:
        values.append(slot.joined(tensors[start : start + slot.count]))
        start += slot.count
    return values


def split(slots: Sequence[Slot], values: Sequence[Any]) -> list[Any]:
    """The tensors of all outputs."""
    return [part for slot, value in zip(slots, values, strict=True) for part in slot.split(value)]
