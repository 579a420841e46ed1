"""Support vector machines of the domain ai.onnx.ml: labels and scores are those of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.errors import InvalidModelError
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.ml_models import check_same, features, ml_model

KERNELS = {"LINEAR": [0.0, 0.0, 3.0], "POLY": [0.3, 0.5, 3.0], "RBF": [0.4, 0.0, 3.0], "SIGMOID": [0.3, 0.1, 3.0]}


def vectors(count: int) -> list[float]:
    return [float(v) for v in features(count, 4, 2).reshape(-1)]


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_regressor(kernel: str, one_class: int) -> None:
    check_same("SVMRegressor", [features(20)], n_supports=5, support_vectors=vectors(5), rho=[0.25],
               coefficients=[0.5, -1.0, 0.25, 0.75, -0.5], kernel_type=kernel, kernel_params=KERNELS[kernel],
               one_class=one_class)  # fmt: skip


def test_a_regressor_without_support_vectors_is_linear() -> None:
    check_same("SVMRegressor", [features()], coefficients=[0.5, -1.0, 0.25, 1.0], rho=[0.5], n_supports=0,
               kernel_params=KERNELS["LINEAR"])  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize(
    "labels",
    [{"classlabels_ints": [4, 2]}, {"classlabels_strings": ["a", "b", "c"]}, {"classlabels_ints": [3, 1, 7, 5]}],
)
def test_the_votes_of_a_classifier(labels: dict[str, Any], transform: str, kernel: str) -> None:
    count = len(next(iter(labels.values())))
    sizes = [3, 1, 2, 4][:count]
    weights = features(count - 1, sum(sizes), 3).reshape(-1).tolist()
    rho = np.linspace(-0.2, 0.3, count * (count - 1) // 2).astype(np.float32).tolist()
    check_same("SVMClassifier", [features(30)], 2, support_vectors=vectors(sum(sizes)), vectors_per_class=sizes,
               coefficients=weights, rho=rho, post_transform=transform, kernel_type=kernel, atol=1e-5,
               kernel_params=KERNELS[kernel], **labels)  # fmt: skip


@pytest.mark.parametrize("labels", [[4, 2], [4, 2, 7]])
def test_a_classifier_without_support_vectors_is_linear(labels: list[int]) -> None:
    weights = features(len(labels), 4, 3).reshape(-1).tolist()
    check_same("SVMClassifier", [features(30)], 2, coefficients=weights, rho=[0.1], classlabels_ints=labels,
               kernel_params=KERNELS["LINEAR"], post_transform="SOFTMAX")  # fmt: skip


def platt(count: int, kernel: str = "RBF") -> dict[str, Any]:
    """A classifier of `count` classes with the parameters of each pair's probability."""
    pairs, sizes = count * (count - 1) // 2, [3, 1, 2, 4][:count]
    return {
        "support_vectors": vectors(sum(sizes)),
        "vectors_per_class": sizes,
        "coefficients": features(count - 1, sum(sizes), 3).reshape(-1).tolist(),
        "rho": np.linspace(-0.2, 0.3, pairs).tolist(),
        "prob_a": np.linspace(-2.5, -1.0, pairs).tolist(),
        "prob_b": np.linspace(-0.3, 0.2, pairs).tolist(),
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "classlabels_ints": [4, 2, 7, 1][:count],
    }


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX"])
def test_the_probabilities_of_pairs_are_coupled(count: int, transform: str) -> None:
    check_same("SVMClassifier", [features(60) * 2], 2, post_transform=transform, atol=2e-5, **platt(count))


def test_rows_without_a_number_and_no_rows_are_coupled_as_well() -> None:
    x = features(4)
    x[1, 2] = np.nan
    check_same("SVMClassifier", [x], 2, **platt(3))
    check_same("SVMClassifier", [x[:0]], 2, **platt(3))


def test_parameters_of_too_few_pairs_are_refused() -> None:
    model = ml_model("SVMClassifier", [features()], 2, **{**platt(3), "prob_a": [1.0], "prob_b": [1.0]})
    with pytest.raises(InvalidModelError, match="1 prob_a, 1 prob_b of 3 pairs"):
        inspect(model, "lifted", Options())


def test_with_probabilities_a_linear_classifier_takes_the_largest_score() -> None:
    weights = features(2, 4, 3).reshape(-1).tolist()
    check_same("SVMClassifier", [features(30)], 2, coefficients=weights, rho=[0.1], classlabels_ints=[4, 2],
               kernel_params=KERNELS["LINEAR"], prob_a=[-1.0], prob_b=[0.0])  # fmt: skip
