"""Normalizations: what they mean, how they are lifted, and what stands for them in TFLite."""

from __future__ import annotations

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import constant
from tests.conformance.cases import Case
from tests.unit.lifting import TFLITE, cases_of, check_legalized, check_lifted, onnx_target
from tests.unit.relabeling import check_relabel

_FAMILY = """
BatchNormalization InstanceNormalization LayerNormalization GroupNormalization RMSNormalization LpNormalization LRN
MeanVarianceNormalization
"""


@pytest.mark.parametrize("case", cases_of(_FAMILY), ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    check_lifted(case)


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("target", [TFLITE, onnx_target(13), onnx_target(21)], ids=["tfl", "onnx 13", "onnx 21"])
def test_normalizations_in_every_form(target: object) -> None:
    vectors = [constant(floats(5, seed=i)) for i in range(1, 4)] + [constant(np.abs(floats(5, seed=4)))]
    for axis, shape in ((1, (2, 5, 3, 4)), (3, (2, 3, 4, 5)), (1, (2, 5))):
        batch_norm = {"feature_index": axis, "epsilon": 1e-3}
        operands = [floats(*shape), *vectors]
        check_legalized(ops.BatchNormInference, operands, target=target, attributes=batch_norm, rtol=1e-4, atol=1e-5)
    lrn = {"axis": 1, "size": 4, "alpha": 0.3, "beta": 0.6, "bias": 2.0}
    for axis in (1, 3):
        check_legalized(ops.LRN, [floats(2, 7, 3, 8)], target=target, attributes={**lrn, "axis": axis}, rtol=1e-5)
    layer = [floats(2, 3, 5), vectors[0], vectors[1]]
    check_legalized(ops.LayerNorm, layer, target=target, attributes={"axis": -1}, rtol=1e-5, atol=1e-6)


def test_normalizations_relabel() -> None:
    vectors = [floats(3, seed=i) for i in range(3)] + [np.abs(floats(3, seed=3))]
    x = floats(2, 3, 4, 5)
    for permutation in ((0, 2, 3, 1), (3, 2, 1, 0)):
        assert check_relabel(ops.BatchNormInference, [x, *vectors], {"feature_index": 1}, 0, permutation)
        assert check_relabel(ops.LRN, [x], {"axis": 1, "size": 3}, -1, permutation)
