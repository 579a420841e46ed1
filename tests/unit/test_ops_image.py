"""Resizing, sampling, boxes and signals: what they mean, how they are lifted, and what stands for them in TFLite."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from onnxtfl.ir import ops
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import constant
from tests.conformance.cases import Case
from tests.unit.lifting import TFLITE, cases_of, check_legalized, check_lifted, onnx_target
from tests.unit.relabeling import check_relabel

_FAMILY = """
Resize Upsample GridSample RoiAlign NonMaxSuppression AffineGrid Det DFT STFT HannWindow HammingWindow BlackmanWindow
NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
"""
_ELSEWHERE = {
    "resize_downsample_scales_linear_align_corners": "ONNX Runtime's coordinates, which differ from the reference's",
    "resize_downsample_scales_cubic_align_corners": "the same",
    "dft_inverse": "sums that are 0 but for rounding",
    "dft_inverse_opset19": "the same",
}
_AT_RUN_TIME = ("test_dft", "test_stft")


@pytest.mark.parametrize("case", cases_of(_FAMILY), ids=lambda c: c.name)
def test_lifted_cases_mean_what_onnx_says(case: Case) -> None:
    if case.name.removeprefix("test_") in _ELSEWHERE:
        pytest.skip(_ELSEWHERE[case.name.removeprefix("test_")])
    if case.name.startswith(_AT_RUN_TIME) and not case.name.endswith("opset19"):
        pytest.skip("the axis or the step is an input")
    check_lifted(case)


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _modes() -> list[dict[str, Any]]:
    places = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    smooth = [{"mode": m, "coordinate_transformation_mode": p} for m in ("linear", "cubic") for p in places]
    pairs = itertools.product(places, ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    names = ("mode", "coordinate_transformation_mode", "nearest_mode")
    nearest = [dict(zip(names, ("nearest", *pair), strict=True)) for pair in pairs]
    return smooth + nearest


@pytest.mark.parametrize("attributes", _modes(), ids=lambda a: "-".join(a.values()))
@pytest.mark.parametrize("sizes", [(12, 16), (3, 4), (7, 5), (1, 9)], ids=str)
def test_resize_in_every_mode(attributes: dict[str, Any], sizes: tuple[int, int]) -> None:
    operands = [floats(1, 2, 6, 8), constant(np.asarray(sizes, np.int64))]
    check_legalized(ops.Resize, operands, attributes={**attributes, "dims": (2, 3)}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", _modes(), ids=lambda a: "-".join(a.values()))
def test_resize_to_a_size_known_at_run_time(attributes: dict[str, Any]) -> None:
    operands = [floats(1, 2, 6, 8), np.asarray((9, 5), np.int32)]
    check_legalized(ops.Resize, operands, attributes={**attributes, "dims": (2, 3)}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [TFLITE, onnx_target(13), onnx_target(18)], ids=["tfl", "onnx 13", "onnx 18"])
def test_resize_of_other_ranks_and_by_odd_factors(target: Any) -> None:
    one, three, two = ((2, 3, 8), (2,), (11,)), ((2, 3, 4, 5, 6), (2, 3, 4), (8, 5, 9)), ((4, 5), (0, 1), (7, 3))
    for shape, dims, sizes in (one, three, two):
        for mode in ("nearest", "linear", "cubic"):
            operands = [floats(*shape), constant(np.asarray(sizes, np.int64))]
            attributes = {"dims": dims, "mode": mode}
            check_legalized(ops.Resize, operands, target=target, attributes=attributes, rtol=1e-4, atol=1e-5)
    scales = constant(np.asarray((2.3, 0.6), np.float32))
    for mode, antialias in (("nearest", False), ("linear", True), ("cubic", True)):
        operands = [floats(1, 2, 6, 8), constant(np.asarray((13, 4), np.int64)), scales]
        attributes = {"dims": (2, 3), "mode": mode, "antialias": antialias}
        check_legalized(ops.Resize, operands, target=target, attributes=attributes, rtol=1e-4, atol=1e-5)


def test_a_part_is_cropped_and_resized() -> None:
    roi = np.asarray([0.4, -0.2, 0.6, 1.3], np.float32)
    attributes = {"dims": (2, 3), "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    for mode in ("nearest", "linear", "cubic"):
        for part in (roi, constant(roi)):
            operands = [floats(1, 2, 6, 8), constant(np.asarray((5, 4), np.int64)), None, part]
            check_legalized(ops.Resize, operands, attributes={**attributes, "mode": mode}, rtol=1e-4, atol=1e-4)


def test_resize_relabels() -> None:
    operands = [floats(2, 3, 4, 5), np.asarray((7, 6), np.int64)]
    for permutation in ((0, 2, 3, 1), (3, 2, 1, 0)):
        assert check_relabel(ops.Resize, operands, {"dims": (2, 3), "mode": "linear"}, 0, permutation)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_samples_are_gathered(mode: str, padding_mode: str, align_corners: bool) -> None:
    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    grid = np.random.default_rng(1).uniform(-1.7, 1.7, (2, 3, 4, 2)).astype(np.float32)
    check_legalized(ops.GridSample, [floats(2, 3, 5, 6), grid], attributes=attributes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_aligned(mode: str) -> None:
    rois = np.asarray([[0.5, 0.7, 3.2, 3.9], [1, 1, 2.5, 2.2], [-0.5, 0.1, 4.5, 6.0]], np.float32)
    sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.9}
    operands = [floats(2, 3, 6, 5), rois, np.asarray([0, 1, 1], np.int64)]
    for half in ("half_pixel", "output_half_pixel"):
        attributes = {"mode": mode, "coordinate_transformation_mode": half, **sizes}
        check_legalized(ops.RoiAlign, operands, attributes=attributes, rtol=1e-4, atol=1e-5)
