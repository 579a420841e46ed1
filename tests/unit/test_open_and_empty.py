"""Tensors without elements and sizes that only a kernel fixes: what runtimes crash on or refuse is never written."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import onnxtfl
from onnxtfl.build.sizes import as_int32
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import symbol
from onnxtfl.ir.graph import Graph, constant
from onnxtfl.ir.types import DType, TensorType
from tests.harness.litert import run_onnx, run_tflite
from tests.unit.tflite_ops import model as one_op
from tests.unit.tiny_models import onnx_model, tflite_scale

for module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(module, reason=f"{module} is not installed")
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def converted(op, shape, result, constants=None, dtype=FLOAT, before=(), **attributes):
    """One node over `x` and `constants`, converted and compared in both runtimes."""
    node = helper.make_node(op, ["x", *before, *(constants or {})], ["y"], **attributes)
    given = dtype if op == "Identity" and dtype == TensorProto.UINT64 else FLOAT
    model = onnx_model([node], [("x", given, shape)], [("y", dtype, result)], constants)
    return onnxtfl.onnx_to_tflite(model, check="require")


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [[0], [4, 0]])
def test_softmax_of_no_elements_is_a_constant(op: str, shape: list[int]) -> None:
    assert not {"SOFTMAX", "LOG_SOFTMAX"} & set(converted(op, shape, shape).report.ops_after)


@pytest.mark.parametrize("flag", [0, 1])
def test_slices_of_no_elements_are_equal(flag: int) -> None:
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], axis=2, sorted=flag)
    outputs = [("y", FLOAT, None), *((name, INT64, None) for name in ("first", "inverse", "counts"))]
    model = onnx_model([node], [("x", FLOAT, [2, 0, 4])], outputs, {}).SerializeToString()
    given = {"x": np.zeros((2, 0, 4), np.float32)}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", given)
    for (_, got), wanted in zip(found, run_onnx(model, given).values(), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_unique_slices_of_an_open_number(flag: int, count: int) -> None:
    """tf2onnx writes DenseBincount (Keras's CategoryEncoding) with Unique of rows of an open number."""
    node = helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], axis=0, sorted=flag)
    outputs = [("y", INT64, None), *((name, INT64, None) for name in ("first", "inverse", "counts"))]
    model = onnx_model([node], [("x", INT64, ["n", 2])], outputs, {}).SerializeToString()
    x = np.random.default_rng(0).integers(0, 2, (count, 2))
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", {"x": x})
    values, *others = np.unique(x, True, True, True, axis=0)
    wanted = [values, *others] if flag or not count else run_onnx(model, {"x": x}).values()
    for (_, got), each in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, each)


@pytest.mark.parametrize("rank", [5, 6, 8])
def test_elements_gathered_from_many_open_axes(rank: int) -> None:
    """The axes that are not indexed are cut to the sizes of the indices, which only the run knows."""
    shape, axis = [2, 3, 2, 1, 2, 2, 1, 2][:rank], rank // 2
    inputs = [("x", FLOAT, [f"x{i}" for i in range(rank)]), ("i", INT64, [f"i{i}" for i in range(rank)])]
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=axis)
    model = onnx_model([node], inputs, [("y", FLOAT, None)], {}).SerializeToString()
    data, rng = onnxtfl.onnx_to_tflite(model, check=False).data or b"", np.random.default_rng(0)
    sizes = [4 if i == axis else max(1, d - 1) for i, d in enumerate(shape)]
    given = {"x": rng.standard_normal(shape, np.float32), "i": rng.integers(0, shape[axis], sizes)}
    np.testing.assert_array_equal(run_tflite(data, given)[0][1], run_onnx(model, given)["y"])


def test_prelu_of_no_elements_is_a_constant() -> None:
    slope = np.ones((1, 1, 0), np.float32)
    assert "PRELU" not in converted("PRelu", [4, 5, 0], [4, 5, 0], {"slope": slope}).report.ops_after


def test_argmax_beside_an_empty_axis_is_a_constant() -> None:
    result = converted("ArgMax", [2, 3, 9, 4, 0], [2, 9, 4, 0], dtype=INT64, axis=1, keepdims=0)
    assert "ARG_MAX" not in result.report.ops_after


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_extreme_of_an_empty_axis_is_refused(op: str) -> None:
    with pytest.raises(InvalidModelError, match="axis 1 is empty"):
        converted(op, [2, 0], [2], dtype=INT64, axis=1, keepdims=0)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resizing_to_and_from_size_0(mode: str) -> None:
    empty = np.array([1, 1, 0, 4], np.int64)
    result = converted("Resize", [1, 1, 0, 4], [1, 1, 0, 4], {"sizes": empty}, before=("", ""), mode=mode)
    assert set(result.report.ops_after) <= {"RESHAPE"}
    with pytest.raises(InvalidModelError, match=r"sizes of \[1, 1, 0, 4\] for \[1,1,4,4\]"):
        converted("Resize", [1, 1, 4, 4], [1, 1, 0, 4], {"sizes": empty}, before=("", ""), mode=mode)
    with pytest.raises(InvalidModelError, match="axis 2 has no elements"):
        sizes = np.array([1, 1, 2, 4], np.int64)
        converted("Resize", [1, 1, 0, 4], [1, 1, 2, 4], {"sizes": sizes}, before=("", ""), mode=mode)


@pytest.mark.parametrize(("rank", "groups"), [(1, 4), (2, 4), (2, 2), (3, 2)])
def test_the_kernel_fixes_the_number_of_channels(rank: int, groups: int) -> None:
    kernel = np.random.default_rng(0).standard_normal((4, 4 // groups, *[3] * rank)).astype(np.float32)
    shape = ["batch", "channels", *[5] * rank]
    result = converted("Conv", shape, ["batch", 4, *[3] * rank], {"w": kernel}, group=groups)
    assert result.report.inputs[0].shape == ("batch", 4, *[5] * rank)


def test_the_kernel_fixes_the_channels_of_a_transposed_convolution() -> None:
    kernel = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32)
    result = converted("ConvTranspose", [1, "channels", 5, 5], [1, 4, 7, 7], {"w": kernel}, group=4)
    assert result.report.inputs[0].shape == (1, 4, 5, 5)


def test_the_vectors_of_a_normalization_fix_the_number_of_channels() -> None:
    """XNNPACK does not load the depthwise convolution of int8 that it becomes with an open number of channels."""
    constants = {"s": np.asarray(0.02, np.float32), "z": np.asarray(3, np.int8)}
    constants |= {name: np.linspace(0.5, 1.5, 4, dtype=np.float32) for name in "abmv"}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["r"]),
        helper.make_node("BatchNormalization", ["r", *"abmv"], ["n"]),
        helper.make_node("QuantizeLinear", ["n", "s", "z"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", TensorProto.INT8, list("NCHW"))], [("y", TensorProto.INT8, None)], constants)
    conversion = onnxtfl.onnx_to_tflite(model, check=False)
    x = np.arange(-48, 48, dtype=np.int8).reshape(2, 4, 3, 4)
    wanted = run_onnx(model.SerializeToString(), {"x": x}, optimized=False)["y"].astype(int)
    found = run_tflite(conversion.data or b"", {"x": x})[0][1].astype(int)
    assert np.abs(found - wanted).max() <= 1
    assert conversion.report.ops_after["DEPTHWISE_CONV_2D"] == 1


@pytest.mark.parametrize(("rank", "groups"), [(1, 1), (2, 2), (3, 2)])
def test_a_kernel_of_open_sizes(rank: int, groups: int) -> None:
    """The kernel is an input: the missing bias has as many zeros as it has output features."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups)
    inputs = [("x", FLOAT, [1, 4, *[5] * rank]), ("w", FLOAT, ["out", 4 // groups, *[3] * rank])]
    model = onnx_model([node], inputs, [("y", FLOAT, None)])
    assert onnxtfl.onnx_to_tflite(model, check="require").data


@pytest.mark.parametrize(("depth", "stored", "groups"), [(2, 4, 2), (1, 4, 4), (4, 1, 1), (3, 4, 1)])
def test_the_groups_of_a_tflite_convolution_of_open_features(depth: int, stored: int, groups: int) -> None:
    """LiteRT counts them at the size that it allocates, which the file says beside the open one."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    kernel = np.random.default_rng(0).standard_normal((4, 3, 3, depth)).astype(np.float32)
    sizes = {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    options = {"padding": "VALID", "fused_activation_function": "NONE", **sizes}
    x = np.zeros((1, 5, 5, stored), np.float32)
    data = one_op("CONV_2D", [x, kernel, np.zeros(4, np.float32)], 1, options)
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shapeSignature = [1, 5, 5, -1]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    report = onnxtfl.tflite_to_onnx(bytes(builder.Output()), check="require").report
    assert report.inputs[0].shape == (1, 5, 5, depth * groups)


def test_two_kernels_that_fix_different_numbers_of_channels() -> None:
    nodes = [helper.make_node("Conv", ["x", kernel], ["y" + kernel]) for kernel in "ab"]
    kernels = {name: np.ones((1, depth, 1, 1), np.float32) for name, depth in (("a", 2), ("b", 3))}
    outputs = [("y" + name, FLOAT, [1, 1, 4, 4]) for name in "ab"]
    model = onnx_model(nodes, [("x", FLOAT, [1, "channels", 4, 4])], outputs, kernels)
    with pytest.raises(InvalidModelError, match="channels would have to be 2 and 3"):
        onnxtfl.onnx_to_tflite(model)


def edited(edit) -> bytes:
    """A .tflite that computes ``y = x * factor`` on [2, 3], changed by `edit`."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(tflite_scale(signature=False), 0))
    edit(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_a_tflite_without_outputs_is_refused() -> None:
    with pytest.raises(InvalidModelError, match="the model has no outputs"):
        onnxtfl.tflite_to_onnx(edited(lambda model: setattr(model.subgraphs[0], "outputs", [])))


@pytest.mark.parametrize(("signature", "shape"), [([5, 3], (2, 3)), ([-1, 7], ("x_d0", 3))])
def test_a_shape_signature_opens_sizes_and_changes_none(signature: list[int], shape: tuple[object, ...]) -> None:
    data = edited(lambda model: setattr(model.subgraphs[0].tensors[0], "shapeSignature", signature))
    assert onnxtfl.tflite_to_onnx(data, check="require").report.inputs[0].shape == shape


def test_an_empty_constant_of_enormous_sizes_is_refused() -> None:
    sizes = [2**31 - 1] * 3 + [0]
    with pytest.raises(InvalidModelError, match="other sizes are too large"):
        onnxtfl.tflite_to_onnx(edited(lambda model: _empty(model, sizes)))


def _empty(model, sizes) -> None:
    tensor = model.subgraphs[0].tensors[1]
    tensor.shape = sizes
    model.buffers[tensor.buffer].data = []


@pytest.mark.parametrize(("op", "size", "result"), [("Conv", 4, [1, 1, 1, 3]), ("ConvTranspose", 1, [1, 1, 2, 5])])
def test_strides_that_move_no_window_may_be_of_any_length(op: str, size: int, result: list[int]) -> None:
    kernel = np.random.default_rng(0).standard_normal((1, 1, 2, 2)).astype(np.float32)
    converted(op, [1, 1, size, 4], result, {"w": kernel}, strides=[40000, 1])


def test_long_strides_that_move_a_window_read_only_what_it_covers() -> None:
    kernel = np.random.default_rng(0).standard_normal((2, 2, 3)).astype(np.float32)
    ops = converted("Conv", [1, 2, 70005], [1, 2, 2], {"w": kernel}, strides=[40000], dilations=[2]).report.ops_after
    assert "SLICE" in ops
    with pytest.raises(UnsupportedError, match="a stride of 40000 over a dynamic size"):
        converted("Conv", [1, 2, "n"], [1, 2, "m"], {"w": kernel}, strides=[40000])
    with pytest.raises(UnsupportedError, match="strides over 32767 in a transposed convolution"):
        converted("ConvTranspose", [1, 2, 2], [1, 2, 40003], {"w": kernel}, strides=[40000])


@pytest.mark.parametrize(("groups", "depth"), [(1, 2), (2, 1)])
def test_long_dilations_read_only_what_the_windows_cover(groups: int, depth: int) -> None:
    kernel = np.random.default_rng(0).standard_normal((2, depth, 2, 2)).astype(np.float32)
    window = {"dilations": [40000, 1], "group": groups}
    ops = converted("Conv", [1, 2, 40003, 3], [1, 2, 3, 2], {"w": kernel}, **window).report.ops_after
    assert "GATHER" in ops
    with pytest.raises(UnsupportedError, match="a dilation of 40000 over a dynamic size"):
        converted("Conv", [1, 2, "n", 3], [1, 2, "m", 2], {"w": kernel}, **window)


def test_long_dilations_of_a_padded_convolution() -> None:
    kernel = np.random.default_rng(0).standard_normal((2, 2, 2, 2)).astype(np.float32)
    converted("Conv", [1, 2, 40001, 3], [1, 2, 3, 2], {"w": kernel}, dilations=[40000, 1], pads=[1, 0, 1, 0])


def test_a_convolution_without_input_channels_is_its_bias() -> None:
    kernel, bias = np.zeros((2, 0, 3), np.float32), np.asarray([1, 2], np.float32)
    assert set(converted("Conv", [1, 0, 4], [1, 2, 2], {"w": kernel, "b": bias}).report.ops_after) <= {"RESHAPE"}


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_a_range_with_a_step_of_run_time_may_be_empty(step: int) -> None:
    names = ("start", "limit", "step")
    node = helper.make_node("Range", names, ["y"])
    model = onnx_model([node], [(name, INT64, ()) for name in names], [("y", INT64, ("n",))])
    data = onnxtfl.onnx_to_tflite(model, check=False, load=False).data
    ((_, found),) = run_tflite(data, [np.asarray(v) for v in (5, 2, step)])
    assert found.tolist() == list(range(5, 2, step))


@pytest.mark.parametrize(("step", "size"), [(1, 3), (-1, 9)])
def test_a_range_to_a_size_on_the_other_side_is_empty(step: int, size: int) -> None:
    """Of an axis of 3 elements from 5 up, of one of 9 down."""
    constants = {"axis": np.asarray(0), "start": np.asarray(5), "step": np.asarray(step)}
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["size"]),
        helper.make_node("Range", ["start", "size", "step"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", FLOAT, ("n",))], [("y", INT64, ("m",))], constants)
    data = onnxtfl.onnx_to_tflite(model, check=False, load=False).data
    ((_, found),) = run_tflite(data, [np.zeros(size, np.float32)])
    assert found.shape == (0,)


@pytest.mark.parametrize(("sizes", "wanted"), [((5, 3), [0, 1]), ((3, 5), []), ((3, 3), [])])
def test_a_range_of_a_difference_of_sizes_may_be_empty(sizes: tuple[int, int], wanted: list[int]) -> None:
    constants = {"axis": np.asarray([0]), "start": np.asarray(0), "step": np.asarray(1)}
    nodes = [
        helper.make_node("Shape", ["x"], ["n"]),
        helper.make_node("Shape", ["y"], ["m"]),
        helper.make_node("Sub", ["n", "m"], ["rest"]),
        helper.make_node("Squeeze", ["rest", "axis"], ["limit"]),
        helper.make_node("Range", ["start", "limit", "step"], ["z"]),
    ]
    inputs = [("x", FLOAT, ("n",)), ("y", FLOAT, ("m",))]
    data = onnxtfl.onnx_to_tflite(onnx_model(nodes, inputs, [("z", INT64, ("k",))], constants), check=False).data
    ((_, found),) = run_tflite(data, [np.zeros(size, np.float32) for size in sizes])
    assert found.tolist() == wanted


def test_an_onnx_model_without_outputs_is_refused() -> None:
    model = onnx_model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [2])], [])
    with pytest.raises(InvalidModelError, match="no graph with outputs"):
        onnxtfl.onnx_to_tflite(model)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean"])
@pytest.mark.parametrize("open_", [False, True])
def test_a_reduction_of_more_axes_than_kernels_have(op: str, open_: bool) -> None:
    """LiteRT's kernels reduce up to 6 axes: runs of adjacent ones are reduced one after the other."""
    shape = ["n", 1, 3, 2, "m", 2, 2, 2] if open_ else [2, 1, 3, 2, 1, 2, 2, 2]
    converted(op, shape, [None] * 4, axes=[1, 3, 4, 6], keepdims=0)


def test_uint64_of_several_open_sizes_is_copied() -> None:
    assert set(converted("Identity", ["a", "b"], ["a", "b"], dtype=TensorProto.UINT64).report.ops_after) == {
        "RESHAPE",
        "SHAPE",
    }


@pytest.mark.parametrize(
    ("shape", "wanted"), [((1, 8), (2, 0, 1)), ((0, 1), (1, 3)), ((3, 1), (1, 0)), ((2, 1), (2, 5))]
)
def test_expand_to_sizes_of_an_input_that_may_be_0(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """An axis of size 1 gets the size that is asked for, also 0."""
    node = helper.make_node("Expand", ["x", "s"], ["y"])
    inputs = [("x", TensorProto.FLOAT, shape), ("s", TensorProto.INT64, [len(wanted)])]
    model = onnx_model([node], inputs, [("y", TensorProto.FLOAT, None)]).SerializeToString()
    feed = {"x": np.ones(shape, np.float32), "s": np.asarray(wanted)}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize(("rows", "wanted"), [(0, 1), (1, 0), (0, 0), (3, 1), (1, 3), (3, 3)])
def test_expand_of_an_open_size_to_one_that_only_a_run_knows(rows: int, wanted: int) -> None:
    """Of two sizes the one that is not 1: no rows stay none (an expert that no token goes to)."""
    nodes = [helper.make_node("Expand", ["x", "s"], ["e"]), helper.make_node("Concat", ["e", "tail"], ["y"], axis=0)]
    inputs = [("x", TensorProto.FLOAT, ["n", 2]), ("s", TensorProto.INT64, [2]), ("tail", TensorProto.FLOAT, [1, 2])]
    model = onnx_model(nodes, inputs, [("y", TensorProto.FLOAT, None)]).SerializeToString()
    x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    feed = {"x": x, "s": np.asarray([wanted, 1]), "tail": np.full((1, 2), 9, np.float32)}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize(("rows", "others"), [(3, 1), (3, 4), (0, 2), (1, 0), (1, 5)])
def test_expand_of_an_open_size_to_the_size_of_a_slice(rows: int, others: int) -> None:
    """Which of two open sizes is 1 is known in a run only (experts of a mixture that several tokens go to)."""
    nodes = [
        helper.make_node("Slice", ["z", "first", "one", "first"], ["row"]),
        helper.make_node("Shape", ["row"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["e"]),
        helper.make_node("Concat", ["e", "row"], ["y"], axis=0),
    ]
    inputs = [("x", TensorProto.FLOAT, ["n", 2]), ("z", TensorProto.FLOAT, ["k", 2])]
    known = {"first": np.asarray([0]), "one": np.asarray([1])}
    model = onnx_model(nodes, inputs, [("y", TensorProto.FLOAT, None)], known).SerializeToString()
    feed = {"x": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2), "z": np.ones((others, 2), np.float32)}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize(("n", "k", "m"), [(3, 1, 3), (1, 1, 4), (1, 2, 1), (0, 1, 1)])
def test_expand_of_a_sum_of_open_sizes_to_another_open_size(n: int, k: int, m: int) -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["x"]),
        helper.make_node("Shape", ["c"], ["s"]),
        helper.make_node("Expand", ["x", "s"], ["e"]),
        helper.make_node("Concat", ["e", "tail"], ["y"], axis=0),
    ]
    shapes = {"a": ["n", 2], "b": ["k", 2], "c": ["m", 2], "tail": [1, 2]}
    inputs = [(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    model = onnx_model(nodes, inputs, [("y", TensorProto.FLOAT, None)]).SerializeToString()
    sizes = {"a": n, "b": k, "c": m, "tail": 1}
    feed = {name: np.arange(2 * size, dtype=np.float32).reshape(size, 2) for name, size in sizes.items()}
    found = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", feed)[0][1]
    np.testing.assert_array_equal(found, run_onnx(model, feed)["y"])


@pytest.mark.parametrize(
    ("op", "vectors"), [("BatchNormalization", "abcd"), ("InstanceNormalization", "ab"), ("LayerNormalization", "ab")]
)
def test_normalization_of_an_open_axis_by_vectors_of_no_elements(op: str, vectors: str) -> None:
    """LiteRT's MUL of [3, 0] by a constant [0] reads an element of it, and ends the process."""
    node = helper.make_node(op, ["x", *vectors], ["y"])
    shape = ["n", "c", "d"] if op == "InstanceNormalization" else ["n", "c"]
    constants = {name: np.zeros(0, np.float32) for name in vectors}
    model = onnx_model([node], [("x", FLOAT, shape)], [("y", FLOAT, None)], constants)
    made = onnxtfl.onnx_to_tflite(model, check=False)
    assert not {"MUL", "ADD"} & set(made.report.ops_after)
    x = np.zeros((3, 0, 2)[: len(shape)], np.float32)
    assert run_tflite(made.data or b"", {"x": x}, kernels="builtin")[0][1].shape == x.shape


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_no_images_of_no_rows_are_resized(mode: str) -> None:
    """There is nothing to compute; of images without rows, it would be an error."""
    sizes = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32), "sizes": np.asarray([0, 2, 4, 3])}
    assert converted("Resize", [0, 2, 0, 3], [0, 2, 4, 3], sizes, mode=mode).report.outputs
    sizes["sizes"] = np.asarray([1, 2, 4, 3])
    with pytest.raises(InvalidModelError, match="axis 2 has no elements to make 4 of"):
        converted("Resize", [1, 2, 0, 3], [1, 2, 4, 3], sizes, mode=mode)


def test_crops_of_maps_without_channels() -> None:
    boxes = {
        "boxes": np.zeros((3, 4), np.float32),
        "which": np.zeros(3, np.int32),
        "size": np.int32([2, 2]),
    }
    made = converted("CropAndResize", ["n", 0, 5, 5], ["m", 0, 2, 2], boxes, domain="com.microsoft")
    assert made.report.outputs


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 4), (5, 5), (0, 1)])
def test_padding_and_crops_by_halves_and_remainders(size: tuple[int, int]) -> None:
    """At 1 x 1 the half of an axis, which a Slice keeps, is empty; LiteRT refused to allocate it."""
    nodes = [helper.make_node("Shape", ["x"], ["sizes"], start=2)]
    nodes += [helper.make_node(op, ["sizes", "two"], [name]) for op, name in (("Div", "halves"), ("Mod", "rests"))]
    nodes += [
        helper.make_node("Concat", ["none", "rests", "none", "halves"], ["pads"], axis=0),
        helper.make_node("Pad", ["x", "pads"], ["padded"]),
        helper.make_node("Slice", ["padded", "halves", "sizes", "axes"], ["middle"]),
        helper.make_node("Slice", ["x", "none", "halves", "axes"], ["first"]),
    ]
    constants = {"two": np.asarray([2]), "none": np.zeros(2, np.int64), "axes": np.asarray([2, 3])}
    inputs = [("x", FLOAT, [1, 2, "h", "w"])]
    model = onnx_model(nodes, inputs, [("middle", FLOAT, None), ("first", FLOAT, None)], constants).SerializeToString()
    data = onnxtfl.onnx_to_tflite(model, check=False).data or b""
    feed = {"x": np.random.default_rng(0).standard_normal((1, 2, *size), np.float32)}
    wanted = run_onnx(model, feed).values()
    for kernels in ("builtin", "default"):
        for (_, found), expected in zip(run_tflite(data, feed, kernels=kernels), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_computed_size_of_0_of_a_reshape_is_said() -> None:
    """[t, -1] of [n, 0] is [n, 0] in ONNX Runtime, which copies the operand's axis in place of t, and [0, n] here."""
    nodes = [
        helper.make_node("Shape", ["x"], ["t"], start=1),
        helper.make_node("Concat", ["t", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    model = onnx_model(nodes, [("x", FLOAT, ["n", "t"])], [("y", FLOAT, None)], {"rest": np.asarray([-1])})
    report = onnxtfl.onnx_to_tflite(model, check=False).report
    (said,) = report.assumptions
    assert said.startswith("t, a size computed for a Reshape, is at least 1")
    assert set(report.minor_assumptions) == {said}


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_sizes_from_which_a_smaller_one_is_computed(axis: int) -> None:
    """The sizes of the result are divided by the block size in int32: int64 has a product with the inverse for it."""
    nodes = [
        helper.make_node("DepthToSpace", ["x"], ["blocks"], blocksize=3),
        helper.make_node("Flatten", ["blocks"], ["y"], axis=axis),
    ]
    model = onnx_model(nodes, [("x", FLOAT, ["n", 18, "h", "w"])], [("y", FLOAT, None)], {}).SerializeToString()
    given = {"x": np.random.default_rng(0).standard_normal((4, 18, 2, 5), np.float32)}
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", given))
    np.testing.assert_array_equal(found["y"], run_onnx(model, given)["y"])


def test_a_factor_beyond_int32_stays() -> None:
    """The sizes are computed in int64, and converted."""
    graph = Graph()
    b = Builder(graph)
    sizes = b(ops.Shape, graph.add_input(TensorType(DType.FLOAT32, (symbol("n"),))))
    inverse = constant(np.asarray([pow(3, -1, 1 << 64) - (1 << 64)], np.int64))
    made = as_int32(b, b(ops.Mul, sizes, inverse))
    assert made.producer is not None and made.producer.op is ops.Convert
    assert as_int32(b, b(ops.Min, sizes, constant(np.asarray([1 << 62])))).producer.op is ops.Min


def test_a_scan_over_no_columns() -> None:
    """It is no recurrent layer."""
    infos = {name: helper.make_tensor_value_info(name, FLOAT, None) for name in ("h", "x", "next", "kept")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Max", ["h", "product"], ["most"]),
        helper.make_node("MatMul", ["h0", "w"], ["factor"]),
        helper.make_node("Mul", ["most", "factor"], ["scaled"]),
        helper.make_node("Sigmoid", ["scaled"], ["next"]),
        helper.make_node("Add", ["x", "next"], ["kept"]),
    ]
    body = helper.make_graph(nodes, "body", [infos["h"], infos["x"]], [infos["next"], infos["kept"]])
    scan = helper.make_node("Scan", ["h0", "xs"], ["last", "all"], body=body, num_scan_inputs=1)
    inputs = [("h0", FLOAT, [2, 0]), ("xs", FLOAT, [3, 2, 0])]
    model = onnx_model([scan], inputs, [("all", FLOAT, None)], {"w": np.zeros((0, 0), np.float32)})
    found = run_tflite(
        onnxtfl.onnx_to_tflite(model, check=False).data or b"",
        {"h0": np.zeros((2, 0), np.float32), "xs": np.zeros((3, 2, 0), np.float32)},
    )
    assert dict(found)["all"].shape == (3, 2, 0)


def test_an_index_of_many_is_out_of_range() -> None:
    """Constants that are computed before run time: others are checked when a model is read."""
    constants = {"zeros": np.zeros((300, 1), np.int64), "one": np.asarray(1), "u": np.ones((300, 1), np.float32)}
    nodes = [
        helper.make_node("Add", ["zeros", "one"], ["i"]),
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1),
    ]
    model = onnx_model(nodes, [("x", FLOAT, [300, 1])], [("y", FLOAT, None)], constants)
    with pytest.raises(InvalidModelError, match="the index 1 is out of range for an axis of size 1"):
        onnxtfl.onnx_to_tflite(model, check=False)


@pytest.mark.parametrize("size", [1, 5])
def test_the_mean_of_padding_only_is_0(size: int) -> None:
    """A window with a gap around one element."""
    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 1], pads=[1, 0, 1, 1])
    model = onnx_model([node], [("x", FLOAT, [1, 2, "h", 3])], [("y", FLOAT, None)], {}, 19).SerializeToString()
    given = {"x": np.ones((1, 2, size, 3), np.float32)}
    ((_, got),) = run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", given)
    np.testing.assert_allclose(got, run_onnx(model, given)["y"], rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_value_of_unknown_rank_is_two_outputs(rows: int) -> None:
    nodes = [helper.make_node("Squeeze", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    outputs = [("y", FLOAT, None), ("z", FLOAT, None)]
    model = onnx_model(nodes, [("x", FLOAT, ["n", "m"])], outputs, {}).SerializeToString()
    given = {"x": np.ones((rows, 4), np.float32)}
    found = dict(run_tflite(onnxtfl.onnx_to_tflite(model, check=False).data or b"", given))
    for name, wanted in run_onnx(model, given).items():
        np.testing.assert_array_equal(found[name], wanted)
