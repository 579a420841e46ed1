"""Pools: what they mean, how they are lifted, and what stands for them in TFLite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.op import Op
from onnxtfl.ir.spatial import Window
from onnxtfl.rules.windows import tfl_padding
from tests.conformance.cases import Case
from tests.unit.lifting import TFLITE, cases_of, check_legalized, check_lifted, onnx_target
from tests.unit.relabeling import check_relabel

_FAMILY = "MaxPool AveragePool GlobalMaxPool GlobalAveragePool LpPool GlobalLpPool MaxUnpool"


@pytest.mark.parametrize("case", cases_of(_FAMILY), ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    check_lifted(case)


def pool(rank: int, **changed: Any) -> dict[str, Any]:
    ones = (1,) * rank
    window = {"kernel_shape": (3,) * rank, "strides": ones, "padding": (0,) * (2 * rank), "dilations": ones}
    return {"dims": tuple(range(2, rank + 2)), **window, **changed}


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


_POOLS = [
    ((2, 3, 9), pool(1, strides=(2,), padding=(1, 0))),
    ((2, 3, 9, 8), pool(2)),
    ((2, 3, 9, 8), pool(2, strides=(2, 2), padding=(1, 1, 1, 1))),
    ((2, 3, 9, 8), pool(2, strides=(2, 3), padding=(0, 1, 2, 0))),
    ((2, 3, 9, 8), pool(2, strides=(2, 2), ceil_mode=True)),
    ((2, 3, 9, 8), pool(2, strides=(2, 3), padding=(1, 0, 1, 1), ceil_mode=True)),
    ((2, 3, 9, 8), pool(2, dilations=(2, 2))),
    ((2, 3, 9, 8), pool(2, strides=(1, 2), padding=(1, 1, 1, 1), dilations=(2, 1))),
    ((2, 3, 5, 6, 7), pool(3, kernel_shape=(2, 3, 2), strides=(2, 1, 2))),
    ((2, 3, 5, 6, 7), pool(3, kernel_shape=(2, 3, 2), padding=(1, 1, 1, 0, 1, 1))),
]


@pytest.mark.parametrize(("shape", "attributes"), _POOLS)
@pytest.mark.parametrize("target", [TFLITE, onnx_target(19)], ids=["tfl", "onnx"])
def test_pools_in_every_form(shape: Any, attributes: Any, target: Any) -> None:
    check_legalized(ops.MaxPool, [floats(*shape)], target=target, attributes=attributes)
    for include in (False, True):
        changed = {**attributes, "count_include_pad": include}
        check_legalized(ops.AveragePool, [floats(*shape)], target=target, attributes=changed, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [ops.MaxPool, ops.AveragePool], ids=lambda op: op.name)
def test_pools_relabel(op: type[Op]) -> None:
    attributes = pool(2, kernel_shape=(2, 3), strides=(2, 1), padding=(1, 0, 0, 1))
    for index in (0, -1):
        for permutation in ((0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 3, 2)):
            assert check_relabel(op, [floats(2, 3, 5, 6)], attributes, index, permutation)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_max_pools_of_integers(dtype: str) -> None:
    x = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 2, 6, 7)).astype(dtype)
    check_legalized(ops.MaxPool, [x], attributes=pool(2, padding=(1, 1, 1, 1)))


@pytest.mark.parametrize(
    ("size", "window", "wanted"),
    [
        (224, Window((3,), (2,), (1,), (1, 1)), None),
        (225, Window((3,), (2,), (1,), (1, 1)), "SAME"),
        (224, Window((3,), (2,), (1,), (0, 1)), "SAME"),
        (224, Window((3,), (2,), (1,), (0, 0)), "VALID"),
        (112, Window((3,), (2,), (1,), (0, 0), ceil=True), "SAME"),
        (8, Window((3,), (1,), (2,), (2, 2)), "SAME"),
        (8, Window((3,), (1,), (1,), (1, 0)), None),
    ],
)
def test_padding_that_tflite_has_a_name_for(size: int, window: Window, wanted: str | None) -> None:
    assert tfl_padding(window, [size]) == wanted
