"""Ensembles of random trees of all kinds: the same leaves, labels and scores as ONNX Runtime's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import UnsupportedError
from tests.unit.ml_models import Array, check_same
from tests.unit.test_tree_ensembles import MODES, random_trees, special_rows, with_weights

CASES = 60


class Draw:
    """Random choices from a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, np.random.default_rng(seed)

    def one(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def rows(self, *dtypes: Any) -> Array:
        """Features of a random type."""
        x, dtype = special_rows(), np.dtype(self.one(np.float32, np.float64, *dtypes))
        return (x if dtype.kind == "f" else np.nan_to_num(np.clip(x, -9, 9))).astype(dtype)

    def trees(self, prefix: str, targets: int) -> dict[str, Any]:
        """The attributes of an ensemble for `targets` targets, with base values in half of them."""
        modes = tuple(self.rng.choice(MODES, self.rng.integers(1, 4)).tolist())
        count, depth = self.rng.integers(1, 7), self.rng.integers(1, 6)
        trees = random_trees(int(count), int(depth), modes, self.one("none", "some", "all"), self.seed)
        kind = "dense" if targets == 1 else self.one("dense", "each", "sparse")
        found = with_weights(trees, prefix, targets, kind, self.one(True, False))
        return found | ({"base_values": self.rng.standard_normal(targets).tolist()} if self.one(True, False) else {})

    def check(self) -> None:
        """Compare a regressor or a classifier."""
        transform = self.one("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
        options: dict[str, Any] = {"version": int(self.one(1, 3)), "post_transform": transform, "atol": 1e-5}
        if self.one(True, False):
            targets = self.one(1, 2, 3)
            options |= {"n_targets": targets, "aggregate_function": self.one("SUM", "AVERAGE", "MIN", "MAX")}
            check_same("TreeEnsembleRegressor", [self.rows()], **self.trees("target", targets), **options)
        else:
            classes = self.one(2, 3)
            names = self.one(
                {"classlabels_int64s": [4, 2, 7][:classes]}, {"classlabels_strings": list("abc"[:classes])}
            )
            check_same("TreeEnsembleClassifier", [self.rows()], 2, **names, **self.trees("class", classes), **options)


def test_random_trees_are_those_of_onnx_runtime() -> None:
    """What ONNX Runtime leaves undefined is refused: fewer than a tenth."""
    refused = 0
    for seed in range(CASES):
        try:
            Draw(seed).check()
        except UnsupportedError:
            refused += 1
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
    assert refused < CASES / 10
