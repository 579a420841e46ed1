"""The ops of the family resizing: what they mean, how they are lifted, and what is written for them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.formats import files
from onnxtfl.ir import ops
from onnxtfl.ir.graph import constant
from onnxtfl.ir.quantized import quantization_of
from tests.harness.litert import run_onnx, run_tflite
from tests.harness.rounds import parsed
from tests.unit.lifting import TFLITE, check_legalized, floats, lifted_onnx, onnx_target
from tests.unit.onnx_nodes import agrees_on
from tests.unit.permuting import check_permuted
from tests.unit.test_quantized_tfl import both, tflite
from tests.unit.tflite_graphs import TfliteGraph, assert_same_as_litert
from tests.unit.tflite_ops import run_both
from tests.unit.tiny_models import onnx_model


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


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [False, True])
def test_antialiasing_to_a_size_known_at_run_time(mode: str, exclude_outside: bool) -> None:
    operands = [floats(1, 2, 9, 12), np.asarray((4, 15), np.int32)]
    attributes = {"dims": (2, 3), "mode": mode, "antialias": True, "exclude_outside": exclude_outside}
    check_legalized(ops.Resize, operands, attributes=attributes, rtol=1e-4, atol=1e-5)


def test_a_part_is_cropped_and_resized() -> None:
    roi = np.asarray([0.4, -0.2, 0.6, 1.3], np.float32)
    attributes = {"dims": (2, 3), "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    for mode in ("nearest", "linear", "cubic"):
        for part in (roi, constant(roi)):
            operands = [floats(1, 2, 6, 8), constant(np.asarray((5, 4), np.int64)), None, part]
            check_legalized(ops.Resize, operands, attributes={**attributes, "mode": mode}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_axis_that_keeps_its_size_is_not_cropped(mode: str) -> None:
    """As in ONNX Runtime."""
    roi, x = np.asarray([0.4, 0.2, 0.6, 0.9], np.float32), floats(1, 2, 6, 8)
    attributes = {"dims": (2, 3), "coordinate_transformation_mode": "tf_crop_and_resize", "mode": mode}
    sizes = constant(np.asarray((6, 8), np.int64))
    for part in (roi, constant(roi)):
        check_legalized(ops.Resize, [x, sizes, None, part], attributes=attributes, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(ops.Resize.evaluate(attributes, x, sizes.numpy(), None, roi), x)


def test_resize_permuted() -> None:
    operands = [floats(2, 3, 4, 5), np.asarray((7, 6), np.int64)]
    for permutation in ((0, 2, 3, 1), (3, 2, 1, 0)):
        assert check_permuted(ops.Resize, operands, {"dims": (2, 3), "mode": "linear"}, 0, permutation)


def test_resize_10_rounds_up_where_it_shrinks() -> None:
    x = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    found = lifted_onnx("Resize", 10, [x, np.asarray([1, 1, 2, 0.6], np.float32)])
    np.testing.assert_array_equal(found[0, 0], [[1, 3], [1, 3], [5, 7], [5, 7]])


@pytest.mark.parametrize(("opset", "attributes"), [(7, {"scales": [1.0, 1.0, 2.0, 1.0]}), (9, {})])
def test_upsample(opset: int, attributes: dict[str, Any]) -> None:
    x = floats(1, 2, 2, 3)
    inputs = [x] if attributes else [x, np.asarray([1, 1, 2, 1], np.float32)]
    found = lifted_onnx("Upsample", opset, inputs, **attributes)
    np.testing.assert_array_equal(found, x.repeat(2, axis=2))


_INTEGERS = {
    "open sizes by an odd factor; others stay": ("uint8[A, B, C, D]", "(x, e, {1, 1, 1.5, 1.5})", (4, 6, 3, 8)),
    "one element three times": ("uint8[A, B, 1]", "(x, e, e, {3, 3, 3})", (1, 1, 1)),
    "volumes": ("int8[1, 2, 3, 2, 4]", "(x, e, e, {1, 2, 5, 3, 7})", (1, 2, 3, 2, 4)),
    "bytes with the channels last, in fixed point": ("int8[N, 3, 4, 5]", "(x, e, e, {2, 5, 7, 5})", (2, 3, 4, 5)),
    "integers with the channels last": ("int32[2, 3, 4, 5]", "(x, e, e, {2, 5, 7, 5})", (2, 3, 4, 5)),
}


@pytest.mark.parametrize("case", _INTEGERS)
def test_integers_are_truncated_as_onnx_runtime_does_it(case: str) -> None:
    kind, operands, shape = _INTEGERS[case]
    values = operands.split("{")[1].strip("})")
    constants = f"<float[0] e = {{}}, {'int64' if ', e, e,' in operands else 'float'}[{len(shape)}] s = {{{values}}}>"
    given = operands.split("{")[0] + "s)"
    text = f"g ({kind} x) => ({kind.split('[')[0]}[{', '.join('PQRST'[: len(shape)])}] y) {constants}"
    model = parsed(f'{text} {{ y = Resize <mode = "linear"> {given} }}', 17)
    x = np.random.default_rng(4).integers(0, 9, shape).astype(kind.split("[")[0])
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False, load=False).data, {"x": x}, kernels="builtin")
    np.testing.assert_array_equal(found, run_onnx(model, {"x": x})["y"])


def test_constant_integers_are_truncated_as_at_run_time() -> None:
    text = """g () => (int32[P, Q, R, S, T] y) <float[0] e = {}, float[5] s = {1, 1, 1.5, 1, 1},
      int32[1, 1, 3, 1, 1] x = {4, -1, -1}> { y = Resize <mode = "linear"> (x, e, s) }"""
    model = parsed(text, 17)
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False, load=False).data, {})
    np.testing.assert_array_equal(found, run_onnx(model, {})["y"])


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_factors_of_a_crop_are_those_of_the_whole_axis(mode: str) -> None:
    """ONNX Runtime resizes what `roi` leaves to the size that the factor has of the whole axis."""
    roi, scales = "{0, 0, 0.25, 0.25, 1, 1, 0.75, 0.75}", "{1, 1, 1.5, 2}"
    resize = f'Resize <coordinate_transformation_mode = "tf_crop_and_resize", mode = "{mode}"> (x, roi, s)'
    given = f"<float[8] roi = {roi}, float[4] s = {scales}>"
    model = parsed(f"g (float[1, 1, 8, 8] x) => (float[N, C, H, W] y) {given} {{ y = {resize} }}", 19)
    x = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    ((_, y),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, [x])
    np.testing.assert_allclose(y, run_onnx(model, {"x": x})["y"], rtol=1e-5)


@pytest.mark.parametrize("inputs", [1, 2], ids=["constant sizes", "sizes of a run"])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 9), (2, 3), (40, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_nearest_with_aligned_corners_and_half_pixel_centers(dtype: Any, sizes: tuple[int, int], inputs: int) -> None:
    """No mode of ONNX is that of LiteRT's kernel."""
    x = np.arange(30, dtype=dtype).reshape(1, 5, 3, 2)
    options = {"align_corners": True, "half_pixel_centers": True}
    run_both(("RESIZE_NEAREST_NEIGHBOR", [x, np.asarray(sizes, np.int32)], inputs, options))


@pytest.mark.parametrize(
    ("dtype", "size", "sizes", "options"),
    [
        (np.float32, (2, 49), (82, 7), {}),
        (np.float32, (2, 3), (83, 5), {"align_corners": True}),
        (np.float32, (2, 3), (41, 5), {"half_pixel_centers": True}),
        (np.uint8, (5, 2), (334, 3), {}),  # in fixed point
    ],
)
def test_nearest_reads_what_the_kernel_rounds_to(
    dtype: Any, size: tuple[int, int], sizes: tuple[int, int], options: dict[str, bool]
) -> None:
    """LiteRT multiplies where ONNX Runtime divides, so that a place can come out just below an integer."""
    x = np.arange(size[0] * size[1]).reshape(1, *size, 1).astype(dtype)
    options = {"align_corners": False, "half_pixel_centers": False, **options}
    run_both(("RESIZE_NEAREST_NEIGHBOR", [x, np.asarray(sizes, np.int32)], 1, options))


def test_nearest_of_bytes_where_the_kernel_in_fixed_point_reads_others() -> None:
    model = parsed(
        """g (uint8[1, 1, 5, 2] x) => (uint8[1, 1, 334, 4] y) <int64[4] s = {1, 1, 334, 4}> {
      y = Resize <coordinate_transformation_mode = "asymmetric", nearest_mode = "floor"> (x, "", "", s) }""",
        18,
    )
    x = np.arange(10, dtype=np.uint8).reshape(1, 1, 5, 2)
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False, load=False).data, {"x": x})
    np.testing.assert_array_equal(found, run_onnx(model, {"x": x})["y"])


@pytest.mark.parametrize(("operands", "assumed"), [('x, "", twice', False), ('x, "", "", sizes', True)])
def test_ratios_of_open_sizes_that_rounding_may_change(operands: str, assumed: bool) -> None:
    """Of 2 rows, LiteRT and ONNX Runtime make 82 in different ways; of a multiple, each row comes as often."""
    text = f"""g (float[1, 2, h, w] x, float[1, 2, k, l] z) => (float[a, b, c, d] y) <float[4] twice = {{1, 1, 2, 2}}>
      {{ sizes = Shape (z) y = Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric",
        nearest_mode = "floor"> ({operands}) }}"""
    there = onnxtfl.onnx_to_tflite(parsed(text), check=False)
    back = onnxtfl.tflite_to_onnx(there.data or b"", check=False)
    for report in (there.report, back.report):
        assert any("is a multiple of the old one" in text for text in report.assumptions) is assumed


FLOAT = TensorProto.FLOAT


def test_resize_of_open_sizes_to_a_size_of_1_reads_the_first_element() -> None:
    attributes = {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "linear"}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    sizes = {"s": np.asarray([8, 4, 1], np.int64)}
    model = onnx_model([node], [("x", FLOAT, [8, "A", "B"])], [("y", FLOAT, [8, 4, 1])], sizes)
    model.opset_import[0].version = 19
    x = np.random.default_rng(0).standard_normal((8, 5, 4)).astype(np.float32)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("scales", [(1, 1, 1.5, 1.5), (1, 1, 1, 3), (1, 1, 0.6, 0.7)])
def test_integers_are_resized_to_the_last_bit(mode: str, scales: tuple[float, ...]) -> None:
    constants = {"s": np.asarray(scales, np.float32)}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode=mode, mode="linear")
    model = onnx_model([node], [("x", TensorProto.UINT8, [2, 3, 6, 5])], [("y", TensorProto.UINT8, None)], constants)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 6, 5)).astype(np.uint8)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_integers_of_open_sizes_are_resized_to_the_last_bit() -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "s"], ["y"], coordinate_transformation_mode="half_pixel", mode="linear"
    )
    sizes = {"s": np.asarray([4, 5], np.int64)}
    model = onnx_model([node], [("x", TensorProto.UINT8, ["A", "B"])], [("y", TensorProto.UINT8, None)], sizes)
    x = np.random.default_rng(0).integers(0, 256, (7, 3)).astype(np.uint8)
    assert agrees_on(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize("option", ["align_corners", "half_pixel_centers", ""])
@pytest.mark.parametrize("dtype", ["int16", "int8"])
def test_a_bilinear_resize_of_integers_over_open_sizes(dtype: str, option: str) -> None:
    def build(g: TfliteGraph) -> Any:
        x = g.given(np.arange(-12, 12).reshape(1, 3, 4, 2), dtype, open_axes=[0, 1, 2])
        sizes = g.constant([5, 7], "int32")
        options = {name: name == option for name in ("align_corners", "half_pixel_centers")}
        return g.op("RESIZE_BILINEAR", [x, sizes], **options)

    assert_same_as_litert(build, [(2, 1, 1, 2)], [(1, 7, 3, 2)])


def test_a_bilinear_resize_of_integers_to_sizes_known_only_at_run_time() -> None:
    def build(g: TfliteGraph) -> Any:
        x = g.given(np.arange(-12, 12).reshape(1, 3, 4, 2), "int16")
        return g.op("RESIZE_BILINEAR", [x, g.given([5, 1], "int32")], align_corners=True, half_pixel_centers=False)

    assert_same_as_litert(build)


def test_a_nearest_resize_of_integers_of_open_sizes() -> None:
    text = """
    graph main(%x: tensor<1x[h]x[w]x1xint64>) -> (%y) {
      %s = tfl.SHAPE@1(%x) {out_type = "INT32"} : tensor<4xint32>
      %b = constant tensor<1xint32> [1]
      %e = constant tensor<1xint32> [3]
      %i = constant tensor<1xint32> [1]
      %two = constant tensor<int32> [2]
      %hw = tfl.STRIDED_SLICE@1(%s, %b, %e, %i) : tensor<2xint32>
      %n = tfl.MUL@1(%hw, %two) : tensor<2xint32>
      %y = tfl.RESIZE_NEAREST_NEIGHBOR@1(%x, %n) : tensor<1x[a]x[b]x1xint64>
    }"""
    x = np.arange(6, dtype=np.int64).reshape(1, 2, 3, 1)
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(tflite(text), check=False).data, {"x": x}).values()
    np.testing.assert_array_equal(found, x.repeat(2, 1).repeat(2, 2))


QUANTIZED_RESIZE = """g (float[1, 2, %s] x) => (float[a, b, c, d] y)
  <float s = {0.02}, int8 z = {3}, float[4] by = {1, 1, %s, %s}, int64[4] to = {1, 2, 200, 200}> {
    q = QuantizeLinear (x, s, z)  d = DequantizeLinear (q, s, z)
    r = Resize <mode = "linear", coordinate_transformation_mode = "%s"> (%s)
    p = QuantizeLinear (r, s, z)  y = DequantizeLinear (p, s, z) }"""
EXTREMES = np.random.default_rng(0).choice(np.array([-2.5, 2.5], np.float32), (1, 2, 61, 61))


@pytest.mark.parametrize("place", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(
    ("sizes", "factor", "operands"),
    [("61, 61", 3, 'd, "", by'), ("61, 61", 1, 'd, "", "", to'), ("h, w", 3, 'd, "", by'), ("h, w", 2, 'd, "", by')],
    ids=["factor", "size", "open, 3", "open, 2"],
)
def test_a_quantized_bilinear_resize_of_large_maps(sizes: str, factor: int, operands: str, place: str) -> None:
    """The int8 kernel multiplies the index by a step in units of 1/1024: 28 steps of quantization off at the end."""
    model = parsed(QUANTIZED_RESIZE % (sizes, factor, factor, place, operands), 17)
    data = onnxtfl.onnx_to_tflite(model, check=False).data or b""
    is_exact = factor == 2 and place != "align_corners"
    (node,) = (n for n in files.read(data).main.nodes if n.op.name == "tfl.RESIZE_BILINEAR")
    assert (quantization_of(node.result) is not None) is is_exact
    ((_, found),) = run_tflite(data, {"x": EXTREMES})
    np.testing.assert_allclose(found, run_onnx(model, {"x": EXTREMES})["y"], rtol=0, atol=0.0201)


@pytest.mark.parametrize("options", ["half_pixel_centers = true", "align_corners = true"])
def test_int8_resized_to_computed_sizes_is_what_the_kernel_computes(options: str) -> None:
    text = f"""graph main(%x: tensor<1x61x61x2xfloat32, quant<int8 0.5:3>>, %s: tensor<2xint32>) -> (%y) {{
      %y = tfl.RESIZE_BILINEAR@3(%x, %s) {{{options}}} : tensor<1x[h]x[w]x2xfloat32, quant<int8 0.5:3>>
    }}"""
    x = np.where(EXTREMES > 0, 120, -120).astype(np.int8).transpose(0, 2, 3, 1)
    wanted, found = both(text, x, np.asarray([200, 183], np.int32))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("sizes", ["61, 61", "h, w"])
def test_stored_integers_of_large_maps_are_rounded_down_as_onnx_runtime_does(dtype: str, sizes: str) -> None:
    """As quantizers write it with QLinearConv: a Resize of bytes, which ONNX Runtime truncates."""
    text = f"""g (float[1, 2, {sizes}] x) => (float[a, b, c, d] y)
      <float s = {{0.02}}, {dtype} z = {{3}}, float[4] by = {{1, 1, 3, 3}}> {{ q = QuantizeLinear (x, s, z)
        r = Resize <mode = "linear", coordinate_transformation_mode = "align_corners"> (q, "", by)
        y = DequantizeLinear (r, s, z) }}"""
    model = parsed(text, 17)
    ((_, found),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, {"x": EXTREMES})
    steps = np.rint((found - run_onnx(model, {"x": EXTREMES})["y"]) / 0.02)
    assert np.abs(steps).max() <= 1 and abs(steps.mean()) < 0.01
