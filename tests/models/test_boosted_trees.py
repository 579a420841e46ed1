# ruff: noqa: E402 - the packages may be missing
"""Models of LightGBM and XGBoost as onnxmltools writes them: labels are the same, scores within the tolerance."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import onnxtfl

onnxmltools = pytest.importorskip("onnxmltools")

from onnxmltools.convert.common.data_types import FloatTensorType

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 5)).astype(np.float32)
X[:, 4] = RNG.integers(0, 6, 80)
THREE = (X[:, :3] + 0.3 * RNG.standard_normal((80, 3))).argmax(axis=1)
TWO = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
REAL = X[:, 0] - X[:, 1] + np.asarray([0, 3, -2, 5, 1, -4])[X[:, 4].astype(int)]
MISSING = np.where(RNG.random(X.shape) < 0.15, np.nan, X).astype(np.float32)
LIGHT = {"n_estimators": 4, "num_leaves": 6, "min_child_samples": 3, "verbose": -1, "n_jobs": 1}
EXTREME = {"n_estimators": 4, "max_depth": 3, "n_jobs": 1}

LIGHTGBM = {
    "three classes as words": ("LGBMClassifier", {}, MISSING, np.asarray(["no", "maybe", "yes"])[THREE]),
    "two classes": ("LGBMClassifier", {}, MISSING, TWO),
    "missing numbers": ("LGBMRegressor", {}, MISSING, REAL),
    "categories, which are sets of equal tests": ("LGBMRegressor", {"min_data_per_group": 2, "cat_smooth": 1}, X, REAL),
    "zeros count as missing": ("LGBMRegressor", {"zero_as_missing": True}, np.round(X), REAL),
    "an average of trees": (
        "LGBMRegressor", {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}, X, REAL
    ),
}  # fmt: skip
XGBOOST = {
    "three classes": ("XGBClassifier", {}, MISSING, THREE),
    "two classes": ("XGBClassifier", {"base_score": 0.3}, MISSING, TWO),
    "missing numbers": ("XGBRegressor", {}, MISSING, REAL),
    "a random forest": ("XGBRFClassifier", {}, X, THREE),
    "counts": ("XGBRegressor", {"objective": "count:poisson"}, X, np.abs(REAL)),
}


def check(exported: Any) -> onnxtfl.Conversion:
    conversion = onnxtfl.onnx_to_tflite(exported, check="require")
    assert conversion.check is not None and conversion.check.status == "passed"
    return conversion


@pytest.mark.parametrize("name", LIGHTGBM)
def test_lightgbm(name: str) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    kind, options, x, labels = LIGHTGBM[name]
    categories = {"categorical_feature": [4]} if name.startswith("categories") else {}
    model = getattr(lightgbm, kind)(**LIGHT, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, labels, **categories)
    inputs = [("X", FloatTensorType([None, 5]))]
    check(onnxmltools.convert_lightgbm(model, initial_types=inputs, zipmap=False))


@pytest.mark.parametrize("name", XGBOOST)
def test_xgboost(name: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    kind, options, x, labels = XGBOOST[name]
    model = getattr(xgboost, kind)(**EXTREME, **options).fit(x, labels)
    check(onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, 5]))]))
