"""Inputs and outputs of sequence and optional type as the tensors that the other model has in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from onnxtfl.errors import UsageError
from onnxtfl.inputs.description import MismatchError, TensorInfo
from onnxtfl.passes.boundary.sequences import unused_name

Kind = Literal["tensor", "list", "stack", "absent"]


@dataclass(frozen=True)
class Slot:
    """An input or output of a model as tensors: itself, one for each element of a sequence, one of all elements, or
    none.
    """

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
        """The tensors of a value of the output. Raises MismatchError if there are more or fewer."""
        if self.kind in ("list", "stack") and not isinstance(value, list):
            raise MismatchError(f"{self.name!r} is declared as a sequence but is not one")
        if self.kind == "stack" and len({np.shape(element) for element in value}) > 1:
            raise MismatchError(f"the elements of {self.name!r}, one tensor here, have different shapes")
        if self.kind == "stack":
            return [np.stack(value) if value else np.zeros(0, np.float32)]
        parts = value if self.kind == "list" else [] if self.kind == "absent" and value is None else [value]
        if len(parts) != self.count:
            raise MismatchError(f"{self.name!r} has {len(parts)} elements, the converted model {self.count}")
        return list(parts)


Slots = tuple[Sequence[Slot], Sequence[Slot]]
"""The slots of the inputs and of the outputs."""


def slots_of(infos: Sequence[TensorInfo], others: Sequence[TensorInfo]) -> tuple[list[Slot], tuple[TensorInfo, ...]]:
    """The slots of the inputs (or outputs) `infos`, and their tensors, named as those of the other model `others`.

    An input that is no tensor in the other model either is not changed.
    """
    names, left = {info.name for info in others}, {info.name for info in others if info.kind != "tensor"}
    slots, tensors, taken = list[Slot](), list[TensorInfo](), {info.name for info in infos}
    for info in infos:
        if info.name in left:
            slots.append(Slot(info.name))
            tensors.append(info)
            continue
        slot, parts = (Slot(info.name), [info.name]) if info.kind == "tensor" else _slot(info, names, taken)
        slots.append(slot)
        shape = (None, *info.shape) if slot.kind == "stack" and info.shape is not None else info.shape
        tensors += [replace(info, name=part, kind="tensor", shape=shape) for part in parts]
    return slots, tuple(tensors)


def _slot(info: TensorInfo, names: set[str], taken: set[str]) -> tuple[Slot, list[str]]:
    """The slot of a sequence or optional, and the names of its tensors, which are among `names` of the other model.

    `taken`: names of other inputs (or outputs).
    """
    if info.kind == "optional":
        return (Slot(info.name), [info.name]) if info.name in names else (Slot(info.name, "absent", 0), [])
    parts = list[str]()
    while (part := unused_name(f"{info.name}_{len(parts)}", taken)) in names:
        parts.append(part)
    if info.name in names and not parts:
        return Slot(info.name, "stack"), [info.name]
    is_list = bool(parts) or info.kind == "sequence"
    return Slot(info.name, "list" if is_list else "absent", len(parts)), parts


def joined(slots: Slots | None, tensors: Sequence[Any]) -> list[Any]:
    """The values of all inputs for the tensors of all of them."""
    if slots is None:
        return list(tensors)
    values, start = [], 0
    for slot in slots[0]:
        values.append(slot.joined(tensors[start : start + slot.count]))
        start += slot.count
    return values


def flattened(slots: Slots | None, infos: Sequence[TensorInfo], given: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a user gave, lists as their elements. Raises UsageError for a list of another length."""
    names, result = iter([info.name for info in infos]), dict(given)
    for slot in () if slots is None else slots[0]:
        parts = [next(names) for _ in range(slot.count)]
        if slot.kind == "list" and slot.name in result:
            elements = list(result.pop(slot.name))
            if len(elements) != len(parts):
                raise UsageError(f"{len(elements)} elements for {slot.name!r}, the other model has {len(parts)}")
            result |= dict(zip(parts, elements, strict=True))
    return result


def split(slots: Slots | None, values: Sequence[Any]) -> list[Any]:
    """The tensors of all outputs."""
    if slots is None:
        return list(values)
    return [part for slot, value in zip(slots[1], values, strict=True) for part in slot.split(value)]
