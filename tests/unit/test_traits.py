"""Traits that ops declare are those of what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir.data import Array
from onnxtfl.ir.op import OPS, Op
from onnxtfl.rewriting.registry import all_rules
from tests.unit.op_samples import Known, samples
from tests.unit.test_decompositions import built, is_drawn

all_rules()
COUNT = 30
MOVING = [op for op in OPS.values() if is_drawn(op) and op.moves is not None]
BINARY = [op for op in OPS.values() if is_drawn(op) and len(op.operands) == 2 and not op.expands]


def computed(op: type[Op], operands: list[Any], attributes: dict[str, Any]) -> Array | None:
    one = built(op, operands, attributes)
    return None if one is None else one.results[0]


@pytest.mark.parametrize("op", MOVING, ids=lambda op: op.name)
def test_an_op_moves_elements_of_the_operands_that_it_says(op: type[Op]) -> None:
    """The elements of the operand i are i * 1000 + 1, + 2, ...: the result has some of each that is moved."""
    assert op.moves is not None
    moved, found = set[int](), set[int]()
    for operands, attributes in samples(op, COUNT):
        places = [i for i in range(*op.moves.indices(len(operands))) if isinstance(operands[i], np.ndarray)]
        marked = list(operands)
        for i in places:
            marked[i] = (i * 1000 + 1 + np.arange(operands[i].size)).reshape(operands[i].shape).astype(np.float32)
        result = computed(op, marked, attributes)
        if result is None or result.dtype != np.float32:
            continue
        moved.update(places)
        elements = result[result != np.float32(attributes.get("value", 0))] if op.inserts else result
        found.update((elements.reshape(-1) // 1000).astype(int).tolist())
    assert found <= moved if op.inserts else found == moved


def _is_symmetric(op: type[Op]) -> bool:
    results = []
    for (a, b), attributes in samples(op, COUNT):
        if isinstance(a, Known | None) or isinstance(b, Known | None):
            continue
        one, other = computed(op, [a, b], attributes), computed(op, [b, a], attributes)
        if one is not None:
            results.append(
                other is not None and one.shape == other.shape and np.array_equal(one, other, equal_nan=True)
            )
    return bool(results) and all(results)


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.name)
def test_ops_whose_operands_may_be_swapped_say_so(op: type[Op]) -> None:
    assert op.commutative is _is_symmetric(op)


UNARY = [
    op
    for op in OPS.values()
    if is_drawn(op) and len(op.operands) == 1 and not op.attributes and op.widens and not op.interval
]
EVERY = np.asarray([*np.linspace(-9.0, 9.0, 400), *np.linspace(-1.0, 1.0, 50)], np.float32)


def _never_decreases(op: type[Op]) -> bool:
    """Whether results do not decrease where they are numbers, and are not the same everywhere."""
    result = computed(op, [np.sort(EVERY)], {})
    if result is None or result.dtype.kind != "f":
        return False
    numbers = result[~np.isnan(result)]
    return bool((np.diff(numbers) >= -1e-6 * np.abs(numbers[1:])).all() and numbers.min() < numbers.max())


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_functions_that_never_decrease_say_so(op: type[Op]) -> None:
    assert (bool(op.monotonic) or op.clamps is not None) is _never_decreases(op)
