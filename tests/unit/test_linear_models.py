"""Linear models of the domain ai.onnx.ml: labels and scores are those of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.ml_models import check_same, features, ml_model

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
WEIGHTS = features(3, 4, 1).reshape(-1).tolist()


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("targets", [1, 3])
def test_a_regressor_transforms_its_scores(targets: int, transform: str) -> None:
    weights = (np.asarray(WEIGHTS[: 4 * targets]) / 20).tolist()
    bias = [0.5, 0.25, 0.125][:targets]
    check_same("LinearRegressor", [features()], coefficients=weights, intercepts=bias, targets=targets,
               post_transform=transform)  # fmt: skip


def test_a_regressor_without_intercepts() -> None:
    check_same("LinearRegressor", [features()], coefficients=WEIGHTS, targets=3)


@pytest.mark.parametrize("labels", [{"classlabels_ints": [7, 3, 9]}, {"classlabels_strings": ["a", "b", "ü"]}])
@pytest.mark.parametrize("transform", TRANSFORMS[:4])
def test_a_classifier_returns_the_label_of_the_largest_score(transform: str, labels: dict[str, Any]) -> None:
    check_same("LinearClassifier", [features()], 2, coefficients=WEIGHTS, intercepts=[0.1, 0.2, 0.3],
               post_transform=transform, multi_class=1, **labels)  # fmt: skip


@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize("labels", [{"classlabels_ints": [4, 2]}, {"classlabels_strings": ["no", "yes"]}])
def test_one_score_decides_between_two_classes(labels: dict[str, Any], transform: str) -> None:
    check_same("LinearClassifier", [features()], 2, coefficients=WEIGHTS[:4], intercepts=[0.1],
               post_transform=transform, **labels)  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_other_types_become_floats(dtype: Any) -> None:
    x = (features() * 4).astype(dtype)
    check_same("LinearClassifier", [x], 2, coefficients=WEIGHTS, intercepts=[0.1, 0.2, 0.3], classlabels_ints=[0, 1, 2])


@pytest.mark.parametrize("op", ["LinearRegressor", "LinearClassifier"])
def test_of_too_many_coefficients_the_first_count(op: str) -> None:
    """ONNX Runtime's example logreg_iris has twice as many as its input has features."""
    more: dict[str, Any] = {"targets": 3} if op == "LinearRegressor" else {"classlabels_ints": [0, 1, 2]}
    results = 1 if op == "LinearRegressor" else 2
    check_same(op, [features()[:, :2]], results, coefficients=WEIGHTS, intercepts=[0.1, 0.2, 0.3], **more)


def test_coefficients_that_do_not_fit_are_refused() -> None:
    model = ml_model("LinearRegressor", [features()], coefficients=WEIGHTS[:3], targets=1)
    with pytest.raises(InvalidModelError, match="3 coefficients for 4 features"):
        inspect(model, "lifted", Options())
