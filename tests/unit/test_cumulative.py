"""The ops of the family cumulative: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from tests.unit.lifting import check_legalized
from tests.unit.permuting import check_permuted

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_axis_known_at_run_time(dtype: type) -> None:
    check_legalized(ops.CumSum, [X, np.asarray([1], dtype)], 1e-6, attributes={"exclusive": True})


@pytest.mark.parametrize("permutation", [(0, 2, 1), (2, 0, 1)])
def test_permuted_axes(permutation: tuple[int, int, int]) -> None:
    assert check_permuted(ops.CumSum, [X, 1], {}, 0, permutation)
