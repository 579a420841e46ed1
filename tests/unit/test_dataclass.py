"""The decorator of the converter's classes of fields has what the code expects of the standard library's."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field, replace

import pytest

from onnxtfl.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Point:
    """Two fields that count, and one that does not."""

    x: int
    y: int = 0
    note: str = field(default="", compare=False)


@dataclass
class Box:
    """A class whose instances change."""

    size: int


def test_instances_are_compared_and_hashed_by_the_fields_that_count() -> None:
    assert Point(1, 2, "a") == Point(1, 2, "b") != Point(1)
    assert len({Point(1, 2, "a"), Point(1, 2, "b"), replace(Point(1), y=3)}) == 2
    assert Box(1) == Box(1) != Box(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Box(1))


def test_instances_are_shown_and_copied() -> None:
    point = Point(1, 2, "a")
    assert repr(point) == "Point(x=1, y=2, note='a')"
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point


@dataclass
class Parts:
    """Fields with all kinds of defaults."""

    name: str
    items: list[int] = field(default_factory=list)
    size: int = field(default=3, init=False)
    known: dict[str, int] = field(default_factory=dict, init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = len(self.items) + self.size


class MoreParts(Parts):
    """A subclass that is no dataclass, whose instance is the first of both."""


def test_instances_have_the_given_fields_and_the_defaults_of_the_others() -> None:
    one, other = MoreParts("a", [1]), Parts(items=[], name="b")
    assert (one.name, one.items, one.size, one.known, one.total) == ("a", [1], 3, {}, 4)
    assert type(one) is MoreParts and other.items == [] and other.total == 3
    assert Parts("c").items is not Parts("d").items
    with pytest.raises(TypeError, match=r"Parts.__init__\(\) missing 1 required positional argument: 'name'"):
        Parts()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        Parts("e", size=1)  # type: ignore[call-arg]
