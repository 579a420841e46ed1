"""Features before a model of the domain ai.onnx.ml: scaled, normalized, filled in, encoded as ONNX Runtime does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir.interpret import run
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect
from tests.unit.ml_models import check_same, features, ml_model

WORDS = np.asarray([["a", "b"], ["ü", "a"], ["?", "b"]], object)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
@pytest.mark.parametrize("size", [1, 4])
def test_scaler(size: int, dtype: Any) -> None:
    parameters = {"offset": [0.5, -1.0, 2.0, 0.0][:size], "scale": [2.0, 0.1, -3.0, 1.0][:size]}
    check_same("Scaler", [(features() * 5).astype(dtype)], **parameters)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer_leaves_rows_of_zeros_as_they_are(norm: str) -> None:
    x = features()
    x[2] = 0
    check_same("Normalizer", [x], norm=norm)
    check_same("Normalizer", [(x * 3).astype(np.int64)], norm=norm)
    check_same("Normalizer", [x[0]], norm=norm)


def test_binarizer() -> None:
    check_same("Binarizer", [np.asarray([[0.1, 0.1000001, -1, 0.2]], np.float32)], threshold=0.1)


@pytest.mark.parametrize("replaced", [0.0, float("nan")])
@pytest.mark.parametrize("values", [[9.0], [1.0, 2.0, 3.0, 4.0], [5.0, 6.0]])
def test_imputer(values: list[float], replaced: float) -> None:
    x = features()
    x[::2, 1], x[1::3, 2] = 0, np.nan
    check_same("Imputer", [x], imputed_value_floats=values, replaced_value_float=replaced)


def test_imputer_of_integers() -> None:
    x = np.arange(8).reshape(2, 4)
    check_same("Imputer", [x], imputed_value_int64s=[7, 8, 9, 10], replaced_value_int64=3)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_one_hot_encoder_knows_what_is_not_there(dtype: Any) -> None:
    x = np.asarray([[1.9, 2], [3, -7]]).astype(dtype)
    check_same("OneHotEncoder", [x], cats_int64s=[3, 1, 2])
    check_same("OneHotEncoder", [x], cats_int64s=[3, 1, 3])


def test_one_hot_encoder_of_strings() -> None:
    check_same("OneHotEncoder", [WORDS], cats_strings=["b", "a", "ü"])


@pytest.mark.parametrize("sizes", [[4, 4], [2, 3], [5, 4], [1, 6]])
def test_feature_vectorizer_cuts_and_pads(sizes: list[int]) -> None:
    check_same("FeatureVectorizer", [features(), features(9, 4, 1)], inputdimensions=sizes)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_feature_vectorizer_of_an_unknown_number_of_features(size: int) -> None:
    check_same("FeatureVectorizer", [features()[0]], inputdimensions=[size])


@pytest.mark.parametrize("x", [features(), np.arange(4), WORDS[:, 0]], ids=["rows", "a vector", "strings"])
@pytest.mark.parametrize("places", [np.asarray([2, 0, 1]), np.asarray([[1], [1]])])
def test_array_feature_extractor(x: Any, places: Any) -> None:
    check_same("ArrayFeatureExtractor", [x, places])


def test_a_negative_index_counts_from_the_end() -> None:
    """ONNX Runtime refuses it; models of skl2onnx multiply what it reads by 0."""
    x, places = features(), np.asarray([-1, 0, -4])
    (found,) = run(inspect(ml_model("ArrayFeatureExtractor", [x, places], 1), "lifted", Options()), [x, places])
    np.testing.assert_array_equal(found, x[:, places])
