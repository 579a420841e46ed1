# ruff: noqa: E402 - the packages may be missing
"""Models of scikit-learn as skl2onnx writes them: labels are the same, scores within the tolerance."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import onnxtfl

pytest.importorskip("sklearn")
skl2onnx = pytest.importorskip("skl2onnx")

from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    gaussian_process,
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    svm,
    tree,
)
from sklearn import pipeline as pipelines
from sklearn import preprocessing as scaling
from sklearn.impute import KNNImputer, SimpleImputer

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 5)).astype(np.float32)
THREE = (X[:, :3] + 0.3 * RNG.standard_normal((80, 3))).argmax(axis=1)
TWO = (X[:, 0] + X[:, 1] > 0).astype(np.int64)
WORDS = np.asarray(["no", "maybe", "yes"])[THREE]
REAL = X @ RNG.standard_normal(5) + np.sin(X[:, 0])
PAIRS = np.stack([REAL, X[:, 1] - X[:, 2]], axis=1)
TREES = {"n_estimators": 5, "random_state": 0}


def pair() -> list[tuple[str, Any]]:
    return [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))]


CLASSIFIERS = {
    "logistic regression": (linear_model.LogisticRegression(), WORDS),
    "random forest": (ensemble.RandomForestClassifier(max_depth=6, **TREES), WORDS),
    "random forest of two classes": (ensemble.RandomForestClassifier(max_depth=4, **TREES), TWO),
    "extra trees": (ensemble.ExtraTreesClassifier(max_depth=5, **TREES), THREE),
    "decision tree": (tree.DecisionTreeClassifier(max_depth=4), THREE),
    "gradient boosting": (ensemble.GradientBoostingClassifier(**TREES), THREE),
    "gradient boosting of two classes": (ensemble.GradientBoostingClassifier(**TREES), TWO),
    "AdaBoost": (ensemble.AdaBoostClassifier(**TREES), THREE),
    "bagging": (ensemble.BaggingClassifier(n_estimators=3, random_state=0), TWO),
    "SVC": (svm.SVC(), WORDS),
    "SVC with probabilities": (svm.SVC(probability=True, random_state=0), WORDS),
    "NuSVC of two classes": (svm.NuSVC(kernel="poly"), TWO),
    "LinearSVC": (svm.LinearSVC(), THREE),
    "nearest neighbours": (neighbors.KNeighborsClassifier(), WORDS),
    "neighbours within a radius": (neighbors.RadiusNeighborsClassifier(3.0), THREE),
    "MLP": (neural_network.MLPClassifier((8,), max_iter=50, random_state=0), WORDS),
    "GaussianNB": (naive_bayes.GaussianNB(), THREE),
    "BernoulliNB": (naive_bayes.BernoulliNB(), TWO),
    "LDA": (discriminant_analysis.LinearDiscriminantAnalysis(), WORDS),
    "voting": (ensemble.VotingClassifier(pair(), voting="soft", flatten_transform=False), THREE),
    "stacking": (ensemble.StackingClassifier(pair(), cv=2), TWO),
    "calibrated": (calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2), TWO),
    "one against the rest": (multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), THREE),
    "a pipeline": (pipelines.make_pipeline(scaling.StandardScaler(), decomposition.PCA(3), svm.SVC()), WORDS),
}
OTHERS = {
    "linear regression": (linear_model.LinearRegression(), PAIRS),
    "random forest": (ensemble.RandomForestRegressor(max_depth=6, **TREES), PAIRS),
    "gradient boosting": (ensemble.GradientBoostingRegressor(**TREES), REAL),
    "SVR": (svm.SVR(), REAL),
    "nearest neighbours": (neighbors.KNeighborsRegressor(), REAL),
    "k-means": (cluster.KMeans(3, random_state=0, n_init=1), None),
    "scalers": (
        pipelines.make_pipeline(scaling.RobustScaler(), scaling.MinMaxScaler(), scaling.Normalizer("l1")),
        None,
    ),
    "one class": (svm.OneClassSVM(), None),
    "Gaussian process": (gaussian_process.GaussianProcessRegressor(gaussian_process.kernels.RBF()), REAL),
    "Gaussian mixture": (mixture.GaussianMixture(3, random_state=0), None),
    "polynomial features": (scaling.PolynomialFeatures(3), None),
    "power transform": (scaling.PowerTransformer(), None),
    "bins": (scaling.KBinsDiscretizer(3, encode="onehot-dense"), None),
}


def check(model: Any, **options: Any) -> onnxtfl.Conversion:
    conversion = onnxtfl.onnx_to_tflite(model, check="require", **options)
    assert conversion.check is not None and conversion.check.status == "passed"
    return conversion


def fitted(model: Any, *data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier(name: str) -> None:
    model, labels = CLASSIFIERS[name]
    options = {} if isinstance(model, svm.LinearSVC) else {id(model): {"zipmap": False}}
    exported = skl2onnx.to_onnx(fitted(model, X, labels), X[:1], options=options)
    conversion = check(exported)
    label = conversion.report.outputs[0]
    assert label.dtype == ("string" if labels is WORDS else "int64")
    assert not isinstance(label.shape[0], int), "the number of rows stays open"


@pytest.mark.parametrize("name", OTHERS)
def test_regressors_and_transforms(name: str) -> None:
    model, labels = OTHERS[name]
    check(skl2onnx.to_onnx(fitted(model, X, labels), X[:1]))


def test_missing_numbers_are_imputed_from_neighbours() -> None:
    missing = np.where(RNG.random(X.shape) < 0.15, np.nan, X).astype(np.float32)
    exported = skl2onnx.to_onnx(fitted(KNNImputer(n_neighbors=3), missing), X[:1])
    report = onnxtfl.check(exported, check(exported).data, data={"X": missing[:9]})
    assert report.status == "passed"


def test_outliers_are_found_by_a_forest() -> None:
    forest = fitted(ensemble.IsolationForest(n_estimators=3, random_state=0), X)
    check(skl2onnx.to_onnx(forest, X[:1], target_opset={"": 18, "ai.onnx.ml": 3}))


def test_maps_become_a_tensor_whose_columns_the_report_names() -> None:
    model = fitted(linear_model.LogisticRegression(), X, WORDS)
    conversion = check(skl2onnx.to_onnx(model, X[:1]))
    assert [output.shape[1:] for output in conversion.report.outputs] == [(), (3,)]
    assert "columns are the classes maybe, no, yes" in str(conversion.report).replace("\n", " ").replace("  ", "")


def test_a_pipeline_of_numbers_and_words() -> None:
    pandas = pytest.importorskip("pandas")
    ports = np.asarray(["a", "b", "alpha"], object)[THREE]
    frame = pandas.DataFrame({"age": X[:, 0], "fare": X[:, 1], "port": ports})
    numbers = pipelines.make_pipeline(SimpleImputer(), scaling.StandardScaler())
    columns = compose.ColumnTransformer([
        ("n", numbers, ["age", "fare"]),
        ("w", scaling.OneHotEncoder(handle_unknown="ignore"), ["port"]),
    ])  # fmt: skip
    model = fitted(pipelines.make_pipeline(columns, ensemble.RandomForestClassifier(max_depth=4, **TREES)), frame, TWO)
    inputs = [(name, FloatTensorType([None, 1])) for name in ("age", "fare")]
    exported = skl2onnx.to_onnx(model, initial_types=[*inputs, ("port", StringTensorType([None, 1]))],
                                options={id(model): {"zipmap": False}})  # fmt: skip
    check(exported)
