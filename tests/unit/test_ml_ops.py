"""Each op of the domain ai.onnx.ml that takes features, on each type and shape of these: what ONNX Runtime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from tests.unit.ml_models import Array, check_same, features

WEIGHTS = {"coefficients": [0.5, -1.0, 0.25, 1.0], "post_transform": "LOGISTIC"}
LEAVES = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [2, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_GT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
LEAF = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [0.25, 2.0]}
OPS: dict[str, tuple[int, dict[str, Any]]] = {
    "Scaler": (1, {"offset": [0.5], "scale": [2.0]}),
    "Binarizer": (1, {"threshold": 1.0}),
    "Normalizer": (1, {"norm": "L2"}),
    "OneHotEncoder": (1, {"cats_int64s": [0, 1, 2]}),
    "FeatureVectorizer": (1, {"inputdimensions": [3]}),
    "LinearRegressor": (1, {"intercepts": [0.5], **WEIGHTS}),
    "LinearClassifier": (2, {"intercepts": [0.5], "classlabels_ints": [4, 2], **WEIGHTS}),
    "SVMRegressor": (1, {"rho": [0.5], "n_supports": 0, "kernel_params": [0.0, 0.0, 3.0], **WEIGHTS}),
    "SVMClassifier": (2, {"rho": [0.5], "classlabels_strings": ["a", "b"], "kernel_params": [0.0, 0.0, 3.0], **WEIGHTS,
                          "coefficients": [0.5, -1.0, 0.25, 1.0, 1.0, 0.5, -0.5, 2.0]}),
    "TreeEnsembleRegressor": (1, LEAVES | {f"target_{name}": items for name, items in LEAF.items()} | {"n_targets": 1}),
    "TreeEnsembleClassifier": (2, LEAVES | {f"class_{name}": items for name, items in LEAF.items()}
                               | {"classlabels_strings": ["no", "yes"]}),
}  # fmt: skip
SHAPES: dict[str, Array] = {"rows": features() * 3, "no rows": features()[:0], "a vector": features()[0] * 3}

CASES = [(op, shape) for op in OPS for shape in SHAPES if not (op.startswith("Tree") and shape == "a vector")]
"""ONNX Runtime's trees take no vectors."""


@pytest.mark.parametrize(("op", "shape"), CASES)
def test_each_type_of_features(op: str, shape: str) -> None:
    results, attributes = OPS[op]
    compared = 0
    for dtype in (np.float32, np.float64, np.int64, np.int32):
        try:
            check_same(op, [SHAPES[shape].astype(dtype)], results, version=1, atol=1e-5, **attributes)
            compared += 1
        except NoKernel:
            continue
    assert compared, "ONNX Runtime has a kernel for one type at least"
