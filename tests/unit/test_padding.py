"""The ops of the family padding: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pad_crops_first(mode: str) -> None:
    x = np.arange(12).reshape(3, 4)
    padded = ops.Pad.evaluate({"mode": mode}, x, np.asarray([[0, 0], [-1, 2]]), None)
    keyword = {} if mode != "constant" else {"constant_values": 0}
    assert (padded == np.pad(x[:, 1:], [(0, 0), (0, 2)], mode, **keyword)).all()  # type: ignore[call-overload]
