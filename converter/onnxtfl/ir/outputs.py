"""The inputs and outputs of a graph: lists that find the places of a value without a search."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)
C = TypeVar("C")


class Outputs(list[T]):
    """A list whose `in` and `replace` take the same time for any number of elements."""

    __slots__ = ("_places",)

    def __init__(self, values: Iterable[T] = ()) -> None:
        super().__init__(values)
        self._places: dict[T, list[int]] | None = None

    def _known_places(self) -> dict[T, list[int]]:
        if self._places is None:
            self._places = {}
            for i, value in enumerate(self):
                self._places.setdefault(value, []).append(i)
        return self._places

    def __contains__(self, value: object) -> bool:
        return value in self._known_places()

    def replace(self, old: T, new: T) -> None:
        """Replace `old` by `new` at all places."""
        known = self._known_places()
        places = known.pop(old, [])
        for i in places:
            list.__setitem__(self, i, new)
        if places:
            known.setdefault(new, []).extend(places)


def _forgetting(name: str) -> Any:
    """Wrap the list method `name`, after which the index is rebuilt."""
    method = getattr(list, name)

    def changed(self: Outputs[Any], *arguments: Any, **keywords: Any) -> Any:
        self._places = None
        return method(self, *arguments, **keywords)

    return changed


for _name in ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"):
    setattr(Outputs, _name, _forgetting(_name))
for _name in ("__setitem__", "__delitem__", "__iadd__", "__imul__"):
    setattr(Outputs, _name, _forgetting(_name))


def indexed(cls: type[C]) -> type[C]:
    """Let `cls` store assigned `inputs` and `outputs` as `Outputs`."""
    for name in ("inputs", "outputs"):
        setattr(cls, name, _kept_as(f"_{name}"))
    return cls


def _kept_as(place: str) -> property:
    """Return a property that stores assigned lists as `Outputs` in the attribute `place`."""

    def assign(graph: object, values: Iterable[Any]) -> None:
        vars(graph)[place] = Outputs(values)

    return property(lambda graph: vars(graph)[place], assign)


def replace_in(values: list[T], old: T, new: T) -> None:
    """Replace `old` by `new` in the outputs of a graph."""
    assert isinstance(values, Outputs)
    values.replace(old, new)
