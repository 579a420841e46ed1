"""The metadata that name the states of a converted model."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.formats.onnx.state_metadata import KEY, StateEntry, decode, encode

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("initial", "length"),
    [
        (np.zeros((), np.float32), 60),
        (np.full((100, 100), 7, np.int8), 60),
        (np.asarray([[1.5, -2.0]], np.float32), 80),
        (np.asarray([True, False]), 80),
        (np.asarray([np.nan, np.inf], np.float32), 120),
        (RANDOM.standard_normal((30, 40)).astype(np.float32), 6600),
        (np.asarray(["a", "b"], object), 80),
    ],
)
def test_initial_values_are_read_back(initial: np.ndarray, length: int) -> None:
    text = encode([StateEntry("h", "h_next", initial)])
    (entry,) = decode({KEY: text}, {"h": initial.dtype})
    assert (entry.input, entry.output) == ("h", "h_next")
    assert entry.initial is not None and entry.initial.dtype == initial.dtype
    np.testing.assert_array_equal(np.broadcast_to(entry.initial, initial.shape), initial)
    assert len(text) < length


def test_states_that_are_only_read_or_written() -> None:
    entries = [StateEntry("a", None, None), StateEntry(None, "b", None)]
    assert decode({KEY: encode(entries)}, {}) == entries


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"input": "x"}]', '[{"input": "x", "output": "y", "initial": {}}]']
)
def test_other_text_is_refused(text: str) -> None:
    if text != "{}":
        with pytest.raises(InvalidModelError, match=KEY):
            decode({KEY: text}, {})
