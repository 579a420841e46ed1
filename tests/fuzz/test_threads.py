"""Conversions at the same time: in several threads, and one within another."""

from __future__ import annotations

import pytest

from tests.fuzz import threads

MODELS = list(threads.models())


def test_in_four_threads() -> None:
    assert threads.different(72, 4) == []


@pytest.mark.parametrize("model", MODELS[::3], ids=range(8))
def test_within_another(model: bytes) -> None:
    """A conversion that is begun by `on_progress` of another one."""
    assert threads.nested(model, MODELS[::5]) == threads.converted(model)
