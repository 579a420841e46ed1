"""The decorator of the converter's classes of fields has what the code expects of the standard library's."""

from __future__ import annotations

import copy
import pickle
from dataclasses import field, replace

import pytest

from onnxtfl.ir.dataclass import dataclass


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
