"""The ops of the family sampling: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.lifting import check_legalized, floats, lifted_onnx
from tests.unit.onnx_nodes import converted_node
from tests.unit.test_microsoft_ops import compare, made, normal
from tests.unit.tiny_models import onnx_model


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_grid_samples_are_gathered(mode: str, padding_mode: str, align_corners: bool) -> None:
    attributes = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    grid = np.random.default_rng(1).uniform(-1.7, 1.7, (2, 3, 4, 2)).astype(np.float32)
    check_legalized(ops.GridSample, [floats(2, 3, 5, 6), grid], attributes=attributes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
@pytest.mark.parametrize("spatial", [(5,), (5, 6), (3, 4, 5)])
def test_few_channels_are_gathered_once(spatial: tuple[int, ...], padding_mode: str) -> None:
    grid = np.random.default_rng(1).uniform(-1.9, 1.9, (2, *(n + 3 for n in spatial), len(spatial)))
    operands = [floats(2, 3, *spatial), grid.astype(np.float32)]
    attributes = {"mode": "linear", "padding_mode": padding_mode}
    check_legalized(ops.GridSample, operands, attributes=attributes, rtol=1e-4, atol=1e-5)
    given = [(name, TensorProto.FLOAT, value.shape) for name, value in zip("xg", operands, strict=True)]
    made = converted_node("GridSample", given, (TensorProto.FLOAT, None), opset=20, **attributes)
    assert made.report.ops_after["GATHER"] == 1 and "LOGICAL_AND" not in made.report.ops_after


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border"])
def test_places_outside_are_sampled_as_in_onnx_runtime(mode: str, padding_mode: str) -> None:
    x, grid = floats(1, 2, 4, 5), np.random.default_rng(3).uniform(-2.5, 2.5, (1, 9, 9, 2)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding_mode}
    given = [(name, TensorProto.FLOAT, value.shape) for name, value in (("x", x), ("g", grid))]
    model = onnx_model(
        [helper.make_node("GridSample", ["x", "g"], ["y"], **attributes)],
        given,
        [("y", TensorProto.FLOAT, None)],
        {},
        opset=20,
    )
    wanted = run_onnx(model.SerializeToString(), {"x": x, "g": grid})["y"]
    np.testing.assert_allclose(lifted_onnx("GridSample", 20, [x, grid], **attributes), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shapes", [("nchw", (2, 5, 6, 2)), ((2, 3, 4, 5), "nhw2"), (("n", 3, 4, 5), ("n", 5, 6, 2))])
def test_sizes_of_grids_may_be_dynamic(shapes: tuple[Sequence[int | str], Sequence[int | str]]) -> None:
    given = [(n, TensorProto.FLOAT, [2 if d == "2" else d for d in s]) for n, s in zip("xg", shapes, strict=True)]
    converted_node("GridSample", given, (TensorProto.FLOAT, None), opset=20, mode="linear")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_a_place_that_is_no_number_is_the_first(mode: str, padding_mode: str) -> None:
    """As in ONNX Runtime; no index can be made of NaN, and LiteRT's GATHER ends the run at one outside."""
    grid = np.asarray([[[[np.nan, 0.2], [0.2, np.nan], [np.inf, 0.1], [-np.inf, 1e30]]]], np.float32)
    known = np.where(np.abs(grid) < 1e15, grid, np.float32(-1))
    x, attributes = floats(1, 2, 4, 5), {"mode": mode, "padding_mode": padding_mode}
    found = lifted_onnx("GridSample", 20, [x, grid], **attributes)
    np.testing.assert_array_equal(found, lifted_onnx("GridSample", 20, [x, known], **attributes))
    assert np.isfinite(found).all()
    check_legalized(ops.GridSample, [x, grid], attributes=attributes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_aligned(mode: str) -> None:
    rois = np.asarray([[0.5, 0.7, 3.2, 3.9], [1, 1, 2.5, 2.2], [-0.5, 0.1, 4.5, 6.0]], np.float32)
    sizes = {"output_height": 2, "output_width": 3, "sampling_ratio": 2, "spatial_scale": 0.9}
    operands = [floats(2, 3, 6, 5), rois, np.asarray([0, 1, 1], np.int64)]
    for half in ("half_pixel", "output_half_pixel"):
        attributes = {"mode": mode, "coordinate_transformation_mode": half, **sizes}
        check_legalized(ops.RoiAlign, operands, attributes=attributes, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("shape", [("b", 3, "h", "w"), (2, 3, "h", 8)])
def test_regions_of_a_map_of_open_sizes(mode: str, shape: tuple[int | str, ...]) -> None:
    """As the R-CNN detectors of torchvision have them, which resize their images themselves."""
    sizes = {"output_height": 3, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5}
    node = helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], mode=mode, **sizes)
    inputs = [("x", TensorProto.FLOAT, shape), ("r", TensorProto.FLOAT, ["n", 4]), ("i", TensorProto.INT64, ["n"])]
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)]).SerializeToString()
    rng = np.random.default_rng(0)
    corners = np.sort(rng.uniform(-2, 20, (5, 2, 2)), axis=1).reshape(5, 4).astype(np.float32)
    feed = {"x": floats(2, 3, 9, 8), "r": corners, "i": rng.integers(0, 2, 5)}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_allclose(found, run_onnx(model, feed)["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 22])
def test_max_roi_pool(opset: int) -> None:
    x = floats(2, 1, 4, 4)
    rois = np.asarray([[1, 0, 0, 3, 3], [0, 2, 2, 2, 2]], np.float32)
    found = lifted_onnx("MaxRoiPool", opset, [x, rois], pooled_shape=[2, 2])
    np.testing.assert_array_equal(found[0, 0], x[1, 0].reshape(2, 2, 2, 2).max(axis=(1, 3)))
    np.testing.assert_array_equal(found[1, 0], np.full((2, 2), x[0, 0, 2, 2]))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("mode", ["half_pixel", "output_half_pixel"])
def test_regions_sampled_as_densely_as_they_are_large(batch: int, mode: str) -> None:
    """`sampling_ratio` 0, the default: of regions within the map, of a known number and of an open one."""
    count, random = 6, np.random.default_rng(5)
    corners = random.random((count, 2)) * 8
    regions = np.concatenate([corners, corners + random.random((count, 2)) * 8], 1).astype(np.float32) * 2
    x = {"x": normal(batch, 3, 16, 20), "r": regions, "b": random.integers(0, batch, count)}
    sizes = {"output_height": 3, "output_width": 5, "sampling_ratio": 0, "spatial_scale": 0.5}
    model = made("RoiAlign", x, 1, domain="", coordinate_transformation_mode=mode, **sizes)
    compare(model, x)
    opened = onnx.load_from_string(model)
    for value in opened.graph.input[1:]:
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    compare(opened.SerializeToString(), x)


def test_the_largest_of_such_samples_is_refused() -> None:
    x = {"x": normal(1, 3, 16, 20), "r": np.ones((1, 4), np.float32), "b": np.zeros(1, np.int64)}
    with pytest.raises(UnsupportedError, match="sampling_ratio = 0"):
        onnxtfl.onnx_to_tflite(made("RoiAlign", x, 1, domain="", mode="max"), check=False)


FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("axis", [2, 3])
def test_a_single_place_of_an_affine_grid_is_at_1_with_aligned_corners(axis: int) -> None:
    sizes = [1, 1, 3, 3]
    sizes[axis] = 1
    constants = {"size": np.asarray(sizes, np.int64)}
    assert converted_node("AffineGrid", [("t", FLOAT, [1, 2, 3])], (FLOAT, None), constants, 20, align_corners=1)
