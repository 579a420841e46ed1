"""The smallest models of what random graphs found (tests/fuzz/graphs_trial.py): each converts and agrees."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from tests.unit.tiny_models import onnx_model

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")
FLOAT, INT64, INT8, INT32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.INT32


def converted(op, inputs, result, constants=None, opset=17, domain="", **attributes):
    """One node over inputs (name, dtype, shape) and constants, converted and compared in both runtimes."""
    names = [*(name for name, *_ in inputs), *(constants or {})]
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    model = onnx_model([node], inputs, [("y", *result)], constants)
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)])
    return onnxtfl.onnx_to_tflite(model, check="require")


def test_more_open_axes_may_broadcast_than_the_kernel_accepts() -> None:
    inputs = [("a", INT64, ["A", "B", "C", 2, "D"]), ("b", INT64, [1, "B", 1, 2, "D"])]
    assert converted("Mul", inputs, (INT64, None))


def test_group_normalization_of_open_channels() -> None:
    constants = {name: np.arange(1, 5, dtype=np.float32) for name in ("scale", "bias")}
    node = helper.make_node("GroupNormalization", ["x", *constants], ["y"], num_groups=2)
    model = onnx_model([node], [("x", FLOAT, ["N", "C", 3])], [("y", FLOAT, None)], constants)
    model.opset_import[0].version = 21
    assert "RESHAPE" in onnxtfl.onnx_to_tflite(model, check=False).report.ops_after


def test_integer_matrices_of_which_one_has_an_open_depth() -> None:
    inputs = [("b", INT8, ["K", 3])]
    node = helper.make_node("MatMulInteger", ["a", "b"], ["y"])
    model = onnx_model([node], inputs, [("y", INT32, None)], {"a": np.arange(8, dtype=np.uint8).reshape(2, 4)})
    assert onnxtfl.onnx_to_tflite(model, check=False, input_shapes={"b": [4, 3]})
    assert onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize("axis", [2, 3])
def test_a_single_place_of_an_affine_grid_is_at_1_with_aligned_corners(axis: int) -> None:
    sizes = [1, 1, 3, 3]
    sizes[axis] = 1
    constants = {"size": np.asarray(sizes, np.int64)}
    assert converted("AffineGrid", [("t", FLOAT, [1, 2, 3])], (FLOAT, None), constants, 20, align_corners=1)


@pytest.mark.parametrize("step", [1, -1])
def test_a_range_whose_limit_is_before_its_start(step: int) -> None:
    inputs = [("start", FLOAT, []), ("limit", FLOAT, [])]
    result = converted("Range", inputs, (FLOAT, None), {"step": np.asarray(step, np.float32)})
    from tests.harness.litert import run_tflite

    bounds = {"start": np.float32(3 * step).reshape(()), "limit": np.float32(step).reshape(())}
    ((_, found),) = run_tflite(result.data, bounds)
    assert found.shape == (0,)


def test_factors_for_rows_of_open_size() -> None:
    constants = {"at": np.array([[0, 1], [1, 0], [0, 1]], np.int64), "by": np.array([2, 3, 5], np.float32)}
    model_inputs = [("x", FLOAT, ["N", "M"])]
    node = helper.make_node("ScatterND", ["x", *constants], ["y"], reduction="mul")
    model = onnx_model([node], model_inputs, [("y", FLOAT, None)], constants)
    assert "UNSORTED_SEGMENT_PROD" in onnxtfl.onnx_to_tflite(model, check="require").report.ops_after


def test_a_transposed_matrix_beside_a_vector() -> None:
    inputs = [("x", FLOAT, [5]), ("m", FLOAT, [3, 5])]
    assert converted("FusedMatMul", inputs, (FLOAT, [3]), domain="com.microsoft", transB=1)


def test_open_weights_of_a_product_convert_back() -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    model = onnx_model([node], [("w", FLOAT, [4, "K"])], [("y", FLOAT, [1, 4])], {"x": np.ones((1, 8), np.float32)})
    assert onnxtfl.tflite_to_onnx(onnxtfl.onnx_to_tflite(model, check=False).data, check=False).data


def agrees(result, model, x) -> bool:
    """Whether the result of a conversion agrees with ONNX Runtime on one more input ``x``, in both sets of kernels."""
    from tests.harness.litert import run_onnx, run_tflite

    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    found = [dict(run_tflite(result, {"x": x}, kernels=kernels))["y"] for kernels in ("default", "builtin")]
    return all(array.shape == wanted.shape and np.allclose(array, wanted, atol=1e-5) for array in found)


def test_resize_of_open_sizes_to_a_size_of_1_reads_the_first_element() -> None:
    attributes = {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "linear"}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attributes)
    sizes = {"s": np.asarray([8, 4, 1], np.int64)}
    model = onnx_model([node], [("x", FLOAT, [8, "A", "B"])], [("y", FLOAT, [8, 4, 1])], sizes)
    model.opset_import[0].version = 19
    x = np.random.default_rng(0).standard_normal((8, 5, 4)).astype(np.float32)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("scales", [(1, 1, 1.5, 1.5), (1, 1, 1, 3), (1, 1, 0.6, 0.7)])
def test_integers_are_resized_to_the_last_bit(mode: str, scales: tuple[float, ...]) -> None:
    constants = {"s": np.asarray(scales, np.float32)}
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], coordinate_transformation_mode=mode, mode="linear")
    model = onnx_model([node], [("x", TensorProto.UINT8, [2, 3, 6, 5])], [("y", TensorProto.UINT8, None)], constants)
    x = np.random.default_rng(0).integers(0, 256, (2, 3, 6, 5)).astype(np.uint8)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_a_constant_is_expanded_to_the_shape_of_another_tensor_that_may_have_ones() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["c", "s"], ["y"])]
    constants = {"c": np.arange(6, dtype=np.float32).reshape(6, 1)}
    model = onnx_model(nodes, [("x", FLOAT, ["A", "B"])], [("y", FLOAT, None)], constants)
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    assert agrees(result, model, np.zeros((1, 3), np.float32))
    assert agrees(result, model, np.zeros((6, 2), np.float32))


@pytest.mark.parametrize(("size", "window", "stride"), [(6, 1, 3), (8, 2, 5), (12, 1, 4), (9, 2, 4)])
@pytest.mark.parametrize("padding", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("op", "dilation"), [("LpPool", 1), ("MaxPool", 2)])
def test_same_padding_of_pools_may_be_negative(
    op: str, dilation: int, padding: str, size: int, window: int, stride: int
) -> None:
    attributes = {"kernel_shape": [window], "strides": [stride], "dilations": [dilation], "auto_pad": padding}
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    model = onnx_model([node], [("x", FLOAT, [1, 1, size])], [("y", FLOAT, None)])
    model.opset_import[0].version = 18
    x = np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ReverseSequence", [("x", FLOAT, ["N", 0]), ("lengths", INT64, [0])]),
        ("Softmax", [("x", FLOAT, ["N", 0])]),
        ("Add", [("x", FLOAT, ["N", 0]), ("other", FLOAT, [1, 1])]),
        ("Hardmax", [("x", FLOAT, ["N", 0])]),
    ],
)
def test_what_has_no_elements_but_open_sizes_is_no_work_for_a_kernel(op: str, inputs: list) -> None:
    from tests.harness.litert import run_tflite

    model = onnx_model([helper.make_node(op, [name for name, *_ in inputs], ["y"])], inputs, [("y", FLOAT, None)])
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    fed = {"x": np.zeros((3, 0), np.float32), "lengths": np.zeros(0, np.int64), "other": np.ones((1, 1), np.float32)}
    fed = {name: fed[name] for name, *_ in inputs}
    for kernels in ("default", "builtin"):
        (_, found), *_ = run_tflite(result, list(fed.values()), kernels=kernels)
        assert found.shape == (3, 0)


def test_a_scale_of_one_element_does_not_say_how_many_features_there_are() -> None:
    constants = {"scale": np.asarray([2], np.float32), "bias": np.asarray([1], np.float32)}
    node = helper.make_node("GroupNormalization", ["x", *constants], ["y"], num_groups=1)
    model = onnx_model([node], [("x", FLOAT, ["N", "C", 3])], [("y", FLOAT, None)], constants)
    model.opset_import[0].version = 21
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_a_sum_of_everything_after_a_reshape_that_another_reshape_follows() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "s"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "a"], ["more"]),
        helper.make_node("ReduceSum", ["flat"], ["y"]),
    ]
    constants = {"s": np.asarray([2, 64], np.int64), "a": np.asarray([-3], np.int64)}
    outputs = [("more", FLOAT, None), ("y", FLOAT, None)]
    model = onnx_model(nodes, [("x", FLOAT, [4, 2, 1, 2, 8])], outputs, constants)
    x = np.random.default_rng(0).standard_normal((4, 2, 1, 2, 8)).astype(np.float32)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_integers_of_open_sizes_are_resized_to_the_last_bit() -> None:
    node = helper.make_node(
        "Resize", ["x", "", "", "s"], ["y"], coordinate_transformation_mode="half_pixel", mode="linear"
    )
    sizes = {"s": np.asarray([4, 5], np.int64)}
    model = onnx_model([node], [("x", TensorProto.UINT8, ["A", "B"])], [("y", TensorProto.UINT8, None)], sizes)
    x = np.random.default_rng(0).integers(0, 256, (7, 3)).astype(np.uint8)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize("op", ["Min", "Identity"])
def test_a_copy_of_no_elements_keeps_its_open_size(op: str) -> None:
    model = onnx_model([helper.make_node(op, ["x"], ["y"])], [("x", FLOAT, [0, 2, "N"])], [("y", FLOAT, None)])
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, np.zeros((0, 2, 0), np.float32))


@pytest.mark.parametrize("op", ["Unique", "NonZero"])
def test_nothing_has_no_distinct_elements(op: str) -> None:
    """Of a size that is known only at run time, a kernel after it would end the process."""
    nodes = [
        helper.make_node(op, ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["f"], to=FLOAT),
        helper.make_node("LogSoftmax", ["f"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", FLOAT, [0])], [("y", FLOAT, None)])
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, np.zeros(0, np.float32))


def test_groups_of_channels_whose_number_depth_to_space_computes() -> None:
    """XNNPACK tells groups by the sizes in the file, so [N, C // 4, ...] has to be [N, 3, ...]."""
    nodes = [
        helper.make_node("DepthToSpace", ["x"], ["d"], blocksize=2),
        helper.make_node("Conv", ["d", "w"], ["y"], group=3),
    ]
    weight = np.random.default_rng(0).standard_normal((6, 1, 3, 3)).astype(np.float32)
    model = onnx_model(nodes, [("x", FLOAT, ["N", "C", "H", "W"])], [("y", FLOAT, None)], {"w": weight})
    x = np.random.default_rng(1).standard_normal((1, 12, 5, 2)).astype(np.float32)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


def test_groups_of_channels_to_which_two_open_sizes_broadcast() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["s"]), helper.make_node("Conv", ["s", "w"], ["y"], group=2)]
    weight = np.random.default_rng(0).standard_normal((2, 1, 2)).astype(np.float32)
    inputs = [("x", FLOAT, [2, "C", 4]), ("z", FLOAT, [2, "D", 4])]
    model = onnx_model(nodes, inputs, [("y", FLOAT, None)], {"w": weight})
    found = onnxtfl.onnx_to_tflite(model, check=True, load=False).check
    assert found is not None and found.status == "passed", found


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_the_weight_fixes_the_size_of_a_bias(op: str) -> None:
    node = helper.make_node(op, ["x", "w", "b"], ["y"])
    inputs = [("x", FLOAT, ["N", "C", 5, 5]), ("b", FLOAT, ["B"])]
    model = onnx_model([node], inputs, [("y", FLOAT, None)], {"w": np.ones((3, 3, 2, 2), np.float32)})
    x, bias = onnxtfl.onnx_to_tflite(model, check=False, load=False).report.inputs
    assert "[N,3,5,5]" in str(x) and "[3]" in str(bias)


def test_a_mean_in_finer_steps_than_the_operand_has_is_rounded_once() -> None:
    node = helper.make_node(
        "QLinearAveragePool", ["x", "a", "p", "b", "q"], ["y"], domain="com.microsoft", kernel_shape=[2, 1]
    )
    scales = {"a": np.float32(0.0625), "p": np.int8(0), "b": np.float32(0.03), "q": np.int8(3)}
    constants = {name: np.asarray(value) for name, value in scales.items()}
    shape = [1, 2, 40, 30]
    model = onnx_model([node], [("x", INT8, shape)], [("y", INT8, [1, 2, 39, 30])], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = np.random.default_rng(0).integers(-60, 60, shape).astype(np.int8)
    from tests.harness.litert import run_onnx, run_tflite

    result = onnxtfl.onnx_to_tflite(model, check=False).data
    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    for kernels in ("default", "builtin"):
        found = dict(run_tflite(result, {"x": x}, kernels=kernels))["y"]
        assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("starts", [[-3, 1], [0, 1], [-1, 2**63 - 1], [2, -1]])
def test_a_slice_that_ends_at_0_has_nothing(starts: list[int]) -> None:
    """XNNPACK takes an end of 0 for the end of the axis."""
    constants = {"s": starts, "e": [0, 2], "a": [0, 1], "t": [1, 1]}
    node = helper.make_node("Slice", ["x", *constants], ["y"])
    arrays = {name: np.asarray(value, np.int64) for name, value in constants.items()}
    model = onnx_model([node], [("x", FLOAT, ["N", "M", 3])], [("y", FLOAT, None)], arrays)
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    assert agrees(result, model, np.ones((4, 3, 3), np.float32))


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_col2im_of_an_open_batch(batch: int) -> None:
    sizes = {"i": np.asarray([4, 4], np.int64), "k": np.asarray([2, 2], np.int64)}
    node = helper.make_node("Col2Im", ["x", *sizes], ["y"])
    model = onnx_model([node], [("x", FLOAT, ["N", 8, 9])], [("y", FLOAT, None)], sizes, opset=18)
    x = np.random.default_rng(0).standard_normal((batch, 8, 9)).astype(np.float32)
    assert agrees(onnxtfl.onnx_to_tflite(model, check=False).data, model, x)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("size", [5, "W"])
def test_a_convolution_of_no_channels_is_its_bias(op: str, size: int | str) -> None:
    weights = {"w": np.zeros((2, 0, 3) if op == "Conv" else (0, 2, 3), np.float32), "c": np.float32([1, -2])}
    node = helper.make_node(op, ["x", "w", "c"], ["y"])
    model = onnx_model([node], [("x", FLOAT, [1, 0, size])], [("y", FLOAT, None)], weights)
    result = onnxtfl.onnx_to_tflite(model, check=False).data
    from tests.harness.litert import run_tflite

    found = dict(run_tflite(result, {"x": np.zeros((1, 0, 5), np.float32)}))["y"]
    np.testing.assert_array_equal(found, np.broadcast_to([[[1], [-2]]], (1, 2, 3 if op == "Conv" else 7)))


@pytest.mark.parametrize("shape", [[1, 2, "N", 4], [1, 2, 3, 4]])
def test_a_pool_of_integers_that_strides_over_elements_is_cropped_at_both_ends(shape: list[int | str]) -> None:
    """SAME is negative padding then, which ONNX Runtime takes for integers only."""
    from tests.harness.litert import run_onnx, run_tflite

    node = helper.make_node(
        "QLinearAveragePool", [*"xazbz"], ["y"], None, None, "com.microsoft", kernel_shape=[1, 2], strides=[3, 1]
    )
    node.attribute.append(helper.make_attribute("auto_pad", "SAME_UPPER"))
    constants = {"a": np.asarray(0.1, np.float32), "b": np.asarray(0.1, np.float32), "z": np.asarray(0, np.int8)}
    model = onnx_model([node], [("x", INT8, shape)], [("y", INT8, None)], constants)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = np.arange(-12, 12, dtype=np.int8).reshape(1, 2, 3, 4) * 5
    wanted = run_onnx(model.SerializeToString(), {"x": x})["y"]
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, {"x": x}))["y"]
    assert found.shape == wanted.shape
    assert np.abs(found.astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("count", [1, 2, 4])
def test_compress_by_a_condition_of_open_size(count: int) -> None:
    """It may be shorter than the axis, or longer: entries beyond the axis count for nothing."""
    from tests.harness.litert import run_onnx, run_tflite

    nodes = [helper.make_node("Compress", ["x", "c"], ["y"], axis=1), helper.make_node("Conv", ["z", "w"], ["v"])]
    inputs = [("x", FLOAT, [3, "M"]), ("c", TensorProto.BOOL, ["N"]), ("z", FLOAT, [1, "M", 1, 1])]
    weight = {"w": np.ones((1, 2, 1, 1), np.float32)}  # M is 2
    model = onnx_model(nodes, inputs, [("y", FLOAT, None), ("v", FLOAT, None)], weight)
    feed = {"x": np.arange(6, dtype=np.float32).reshape(3, 2), "c": np.ones(count, np.bool_)}
    feed["z"] = np.ones((1, 2, 1, 1), np.float32)
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data, feed))["y"]
    np.testing.assert_array_equal(found, run_onnx(model.SerializeToString(), feed)["y"])
