"""Small TFLite graphs that random ones found: ONNX Runtime computes what LiteRT does, at all sizes of open dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import onnxtfl
from tests.fuzz.drawing import Input
from tests.fuzz.tflite_drawing import Scale, TfliteDrawing
from tests.harness.compare import largest_error
from tests.harness.litert import run_onnx, run_tflite

for _module in ("onnxruntime", "ai_edge_litert"):
    pytest.importorskip(_module, reason=f"{_module} is not installed")


class Graph(TfliteDrawing):
    """A graph with given operands. ``shapes``: those of its inputs in other runs."""

    shapes: Sequence[dict[str, tuple[int, ...]]] = ()

    def given(self, elements: Any, dtype: Any = "float32", *, open_axes: Sequence[int] = ()) -> str:
        """An input with these elements."""
        array = np.asarray(elements, dtype)
        name = f"in{len(self.inputs)}"
        dims = [f"{name}_{i}" if i in open_axes else n for i, n in enumerate(array.shape)]
        self.sizes |= {d: n for d, n in zip(dims, array.shape, strict=True) if isinstance(d, str)}
        self.inputs[name], self.arrays[name] = Input(str(array.dtype), tuple(dims), -4, 4), array
        return name


def check(build: Callable[[Graph], Any], *others: Sequence[tuple[int, ...]]) -> None:
    """Convert the graph that `build` makes; compare on its arrays, and on `others`: shapes of all inputs."""
    g = Graph(0)
    g.rankless = False
    assert build(g), "LiteRT refuses the graph"
    data = g.model()
    converted = onnxtfl.tflite_to_onnx(data, check=False).data
    assert isinstance(converted, bytes)
    feeds = [{n: g.arrays[n] for n in g.inputs}]
    feeds += [{n: g.inputs[n].draw(g.random, s) for n, s in zip(g.inputs, shapes, strict=True)} for shapes in others]
    for fed in feeds:
        actual, expected = run_onnx(converted, fed), dict(run_tflite(data, fed, kernels="builtin"))
        for name, array in expected.items():
            assert actual[name].shape == np.shape(array)
            assert largest_error(actual[name], np.asarray(array)) <= 1, f"{actual[name]} instead of {array}"


X = np.random.default_rng(0).uniform(-3, 3, (2, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("activation", ["TANH", "SIGN_BIT"])
def test_kernels_ignore_a_fused_tanh(activation: str) -> None:
    option = {"fused_activation_function": activation}
    check(lambda g: g.op("ADD", [g.given(X), g.given(X)], **option))
    check(
        lambda g: g.op(
            "L2_POOL_2D", [g.given(X[None])], filter_height=1, filter_width=2, stride_h=1, stride_w=1, **option
        )
    )


def test_signs_of_zeros_in_atan2() -> None:
    y, x = np.meshgrid([-1, -0.0, 0.0, 1], [-1, -0.0, 0.0, 1])
    check(lambda g: g.op("ATAN2", [g.given(y), g.given(x)]))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "uint32"])
def test_casts_of_floats_saturate(dtype: str) -> None:
    check(lambda g: g.op("CAST", [g.given([-70000, -200.5, -1, 0.5, 70])], dtype))


@pytest.mark.parametrize("axes", [[1, 1], [2, -1, 0]])
def test_an_axis_named_twice_counts_once(axes: list[int]) -> None:
    check(lambda g: g.op("SUM", [g.given(X), g.constant(axes, "int32")]))
    check(lambda g: g.op("SQUEEZE", [g.given(X[:1, :1])], squeeze_dims=[0, 1, -3]))


def test_axes_of_a_scalar_are_not_read() -> None:
    check(lambda g: g.op("REDUCE_MAX", [g.given(2.0), g.constant([0], "int32")]))


def test_padding_of_a_scalar() -> None:
    none = np.zeros((0, 2), np.int32)
    check(lambda g: g.op("PADV2", [g.given(2, "int32"), g.constant(none), g.constant(1, "int32")]))
    check(lambda g: g.op("MIRROR_PAD", [g.given(2.0), g.constant(none)]))


def test_an_element_of_each_row_of_a_constant() -> None:
    table, places = np.asarray([[1, 2], [3, 4]], np.uint8), [1, 0]
    check(lambda g: g.op("GATHER", [g.constant(table), g.constant(places, "int32")], axis=1, batch_dims=1))


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (3, -4), (-1, -1)])
def test_stablehlo_pad_cuts_off_more_than_there_is(low: int, high: int) -> None:
    options = {"edge_padding_low": [low, 1], "edge_padding_high": [high, 0], "interior_padding": [0, 1]}
    check(lambda g: g.op("STABLEHLO_PAD", [g.given([[1.0, 2.0]]), g.constant(5.0, "float32")], **options))


def _sliced(masks: dict[str, int], *vectors: list[int]) -> Callable[[Graph], Any]:
    return lambda g: g.op("STRIDED_SLICE", [g.given(X), *(g.constant(v, "int32") for v in vectors)], **masks)


def test_an_ellipsis_of_a_strided_slice_is_an_axis() -> None:
    check(_sliced({"ellipsis_mask": 1, "shrink_axis_mask": 2}, [0, 1, 0, 2], [0, 2, 2, 4], [1, 1, 1, 1]))


def test_entries_beyond_the_axes_are_ignored() -> None:
    check(_sliced({}, [0, 1, 0, 2], [2, 3, 2, 3], [1, 1, 1, 1]))


def test_a_table_with_open_columns() -> None:
    def build(g: Graph) -> Any:
        rows = g.given(X[0], open_axes=(1,))
        keys = g.constant([2, 5, 7], "int32")
        return g.op("HASHTABLE_LOOKUP", [g.constant([5, 3], "int32"), keys, rows], "float32", "uint8")

    check(build, [(3, 7)])


@pytest.mark.parametrize("sizes", [(3, 3), (1, 3)])
def test_a_dilated_convolution_with_same_padding_over_open_sizes(sizes: tuple[int, int]) -> None:
    def build(g: Graph) -> Any:
        x = g.given(np.resize(X, (1, 7, 6, 2)), open_axes=(0, 1, 2))
        inputs = [x, g.constant(np.resize(X, (3, *sizes, 2))), g.constant(np.zeros(3), "float32")]
        strides = {"stride_h": 2, "stride_w": 3, "dilation_h_factor": 2, "dilation_w_factor": 1}
        return g.op("CONV_2D", inputs, padding="SAME", **strides)

    check(build, [(2, 8, 9, 2)], [(1, 1, 1, 2)], [(1, 12, 5, 2)])


def test_a_pool_with_gaps_over_open_sizes() -> None:
    def build(g: Graph) -> Any:
        x = g.given(np.resize(X, (1, 7, 6, 2)), open_axes=(1, 2))
        options = {"filter_height": 2, "filter_width": 2, "stride_h": 3, "stride_w": 1, "padding": "SAME"}
        return g.op("MAX_POOL_2D", [x], **options)

    check(build, *([(1, n, 4, 2)] for n in range(1, 7)))


def test_a_diagonal_of_open_matrices() -> None:
    def build(g: Graph) -> Any:
        return g.op("MATRIX_SET_DIAG", [g.given(X, open_axes=(1,)), g.given(X[:, :, 0], open_axes=(1,))])

    check(build, [(2, 6, 4), (2, 4)], [(2, 2, 4), (2, 2)])


@pytest.mark.parametrize("op", ["L2_POOL_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_same_windows_of_one_element_skip_others_over_open_sizes(op: str) -> None:
    def build(g: Graph) -> Any:
        x = g.given(np.resize(X, (1, 7, 6, 2)), open_axes=(1, 2))
        return g.op(op, [x], filter_height=3, filter_width=1, stride_h=3, stride_w=3, padding="SAME")

    check(build, *([(1, n, n + 1, 2)] for n in range(1, 5)))


def test_an_axis_that_shrinks_at_a_masked_begin_is_at_its_first_place() -> None:
    check(_sliced({"begin_mask": 1, "shrink_axis_mask": 1}, [1, 0, 0], [2, 2, 2], [3, 1, 1]))


@pytest.mark.parametrize("op", ["SELECT", "SELECT_V2"])
def test_a_choice_of_single_elements_has_the_declared_rank(op: str) -> None:
    def build(g: Graph) -> Any:
        return g.op(op, [g.given(True, "bool"), g.constant([3], "int32"), g.constant([4], "int32")])

    check(build)


@pytest.mark.parametrize(("padding", "height"), [("SAME", 5), ("SAME", 6), ("VALID", 8)])
def test_a_transposed_convolution_to_sizes_known_at_run_time(padding: str, height: int) -> None:
    """The kernel crops half of what the result has too much before it, and pads the end."""

    def build(g: Graph, open_axes: Sequence[int], computed: bool) -> Any:
        shape = np.asarray([1, height, 3, 2], np.int32)
        options = {"padding": padding, "stride_h": 2, "stride_w": 1}
        operands = [g.weight("float32", [2, 3, 1, 4]), g.given(X[:1, :, None].repeat(3, 2), open_axes=open_axes)]
        sizes = g.choice(shape, share=1.0) if computed else g.constant(shape, "int32")
        return g.op("TRANSPOSE_CONV", [sizes, *operands, g.constant([1, 2], "float32")], "float32", **options)

    check(lambda g: build(g, [1, 2], False))
    check(lambda g: build(g, [], True))
    check(lambda g: build(g, [0, 1, 2], True))


def test_windows_gathered_from_open_sizes() -> None:
    """Their starts are clamped so that they fit."""
    options = {"offset_dims": [1, 2, 3], "rank": 4, "start_index_map": [1], "index_vector_dim": 1}
    check(
        lambda g: g.op(
            "STABLEHLO_GATHER",
            [g.given(X, open_axes=[0, 1, 2]), g.constant([[2], [0], [-3]], "int32")],
            **options,
            slice_sizes=[2, 2, 3],
        ),
        [(4, 2, 5)],
    )


def test_an_empty_quantized_result() -> None:
    """It is a constant, and as an output a copy of it."""

    def build(g: Graph) -> Any:
        x = g.given(np.zeros([2, 1, 0]), "int8")
        g.quantized[x] = Scale((0.25,), (51,))
        g.quantized["v0_0"] = g.quantized[x]
        return g.op("TRANSPOSE", [x, g.constant([0, 2, 1], "int32")], rank=3)

    check(build)


@pytest.mark.parametrize("least", [0.0, 0.3])
def test_soft_suppression_of_boxes(least: float) -> None:
    """Overlaps lower scores; a box without an area, which does not overlap itself, is chosen again and again."""
    corners = [[0, 0, 4, 4], [0, 1, 4, 5], [3, 3, 1, 1], [0, 0, 4, 4], [9, 9, 9, 9], [8, 0, 9, 4]]
    scores = [0.9, 0.8, 0.7, 0.6, 0.05 + least, 0.5]

    def build(g: Graph) -> Any:
        numbers = [g.given(v) for v in (0.9, least, 0.4)]
        return g.op(
            "NON_MAX_SUPPRESSION_V5",
            [g.given(corners, open_axes=[0]), g.given(scores, open_axes=[0]), g.given(8, "int32"), *numbers],
            *("int32", "float32", "int32"),
        )

    check(build)


@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_elements_that_no_window_of_an_open_size_reads(op: str) -> None:
    """With a stride over the window's size, SAME may leave out elements at the end."""
    option = {"padding": "SAME", "filter_height": 2, "filter_width": 3, "stride_h": 3, "stride_w": 3}
    x = np.arange(63, dtype=np.float32).reshape(1, 9, 7, 1) / 8
    shapes = [[(1, n, n, 1)] for n in (1, 2, 4, 5)]
    check(lambda g: g.op(op, [g.given(x, open_axes=[1, 2])], **option, fused_activation_function="NONE"), *shapes)


def test_windows_without_a_position() -> None:
    """LiteRT computes an empty result where the operand is a little shorter than the window."""
    option = {"padding": "VALID", "stride_h": 1, "stride_w": 3, "fused_activation_function": "RELU"}
    x, weight = X[:1, :, None].repeat(2, 2), np.ones([4, 1, 4, 4], np.float32)
    check(
        lambda g: g.op(
            "CONV_2D",
            [g.given(x, open_axes=[0]), g.constant(weight, "float32"), g.constant([1] * 4, "float32")],
            **option,
        )
    )
    check(lambda g: g.op("MAX_POOL_2D", [g.given(x)], **option, filter_height=1, filter_width=4))


def test_sizes_of_parts_known_at_run_time() -> None:
    """-1 is what the others leave."""
    check(
        lambda g: g.op(
            "SPLIT_V",
            [g.given(X, open_axes=[1]), g.given([1, -1], "int32"), g.constant(1, "int32")],
            *("float32", "float32"),
            num_splits=2,
        )
    )


def test_an_empty_result_whose_sizes_are_an_operand() -> None:
    """Dilations known only at run time are in the shape that the empty result is written with."""

    def build(g: Graph) -> Any:
        x = g.constant(np.zeros([2, 3, 4, 0]), "int64")
        return g.op("DILATE", [x, g.given([3, 2, 3, 1], "int32"), g.constant(3, "int64")])

    check(build)


def test_negative_axes_of_an_empty_operand_known_at_run_time() -> None:
    """ONNX Runtime reduces those of an empty operand only where they are counted from the first."""

    def build(g: Graph) -> Any:
        x, axes = g.given(np.zeros([0, 2]), open_axes=[0, 1]), g.given([-2, -1], "int32")
        return g.op("SUM", [x, axes], keep_dims=True, rank=2)

    check(build)


def test_reductions_of_no_elements() -> None:
    nothing = np.zeros((2, 0), np.float32)
    for op in ("MEAN", "REDUCE_MAX", "REDUCE_MIN"):
        check(lambda g, op=op: g.op(op, [g.constant(nothing, "int32"), g.constant([1], "int32")]))  # type: ignore[misc]


def test_sums_of_no_segments() -> None:
    ids = np.zeros(2, np.int32)
    check(
        lambda g: g.op("SEGMENT_SUM", [g.given(X, open_axes=[0]), g.given(ids, "int32", open_axes=[0])]),
        [(0, 3, 4), (0,)],
    )


@pytest.mark.parametrize(("op", "options"), [("MATRIX_DIAG", {}), ("EXP", {})])
def test_an_open_size_beside_one_of_0(op: str, options: dict[str, Any]) -> None:
    empty = np.zeros((2, 0, 3), np.float32)
    check(lambda g: g.op(op, [g.given(empty, open_axes=[0])], **options), [(5, 0, 3)])


def test_elements_in_the_file_have_no_open_sizes() -> None:
    class Opened(Graph):
        def _tensor(self, name: str, buffer: int, kind: tuple[str, int] | None) -> dict[str, Any]:
            found = super()._tensor(name, buffer, kind)
            return found | {"shape_signature": [-1, 3, 4]} if name in self.constants else found

    g = Opened(0)
    assert g.op("ADD", [g.given(X), g.constant(X)])
    onnxtfl.tflite_to_onnx(g.model())


@pytest.mark.parametrize(
    ("op", "kernel", "options", "message"),
    [
        ("CONV_2D", [-1, -1, -1, 3], {}, "a kernel whose size is known only at run time"),
        (
            "DEPTHWISE_CONV_2D",
            [1, 2, 2, 8],
            {"depth_multiplier": 3},
            "a depthwise kernel of 8 features and multiplier 3",
        ),
    ],
)
def test_convolutions_of_unknown_sizes(op: str, kernel: list[int], options: dict[str, Any], message: str) -> None:
    class Open(Graph):
        def _tensor(self, name: str, buffer: int, kind: tuple[str, int] | None) -> dict[str, Any]:
            found = super()._tensor(name, buffer, kind)
            return found | {"shape_signature": kernel if name == "in1" else [-1] * 4} if name != "in2" else found

    g, weight = Open(0), np.ones([2 if n < 0 else n for n in kernel], np.float32)
    bias = np.zeros(weight.shape[-1 if op[0] == "D" else 0], np.float32)
    x = np.ones((1, 5, 5, 4 if op[0] == "D" else 3), np.float32)
    assert g.op(op, [g.given(x), g.given(weight), g.given(bias)], stride_w=1, stride_h=1, **options)
    with pytest.raises(onnxtfl.UnsupportedError, match=message):
        onnxtfl.tflite_to_onnx(g.model(), check=False)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_softmax_of_bytes_over_an_open_axis_of_one_element(dtype: str) -> None:
    """It is 1, for which ONNX Runtime's kernel of uint8 has 0."""

    def build(g: Graph) -> Any:
        x = g.given([[5], [9]], dtype, open_axes=[1])
        g.quantized[x], g.quantized["v0_0"] = Scale((0.25,)), Scale((1 / 256,), (0 if dtype == "uint8" else -128,))
        return g.op("SOFTMAX", [x], beta=1.0)

    check(build)


@pytest.mark.parametrize("option", ["align_corners", "half_pixel_centers", ""])
@pytest.mark.parametrize("dtype", ["int16", "int8"])
def test_a_bilinear_resize_of_integers_over_open_sizes(dtype: str, option: str) -> None:
    def build(g: Graph) -> Any:
        x = g.given(np.arange(-12, 12).reshape(1, 3, 4, 2), dtype, open_axes=[0, 1, 2])
        sizes = g.constant([5, 7], "int32")
        options = {name: name == option for name in ("align_corners", "half_pixel_centers")}
        return g.op("RESIZE_BILINEAR", [x, sizes], **options)

    check(build, [(2, 1, 1, 2)], [(1, 7, 3, 2)])


def test_a_bilinear_resize_of_integers_to_sizes_known_only_at_run_time() -> None:
    def build(g: Graph) -> Any:
        x = g.given(np.arange(-12, 12).reshape(1, 3, 4, 2), "int16")
        return g.op("RESIZE_BILINEAR", [x, g.given([5, 1], "int32")], align_corners=True, half_pixel_centers=False)

    check(build)


def test_a_slice_backward_from_the_first_element_of_an_open_axis_that_may_be_empty() -> None:
    bounds = [[2**31 - 1, 0], [0, 0], [1, -2]]
    check(
        lambda g: g.op(
            "STRIDED_SLICE",
            [g.given(np.ones((2, 2)), open_axes=[0, 1]), *(g.constant(v, "int32") for v in bounds)],
            **dict.fromkeys(("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0),
            end_mask=2,
            offset=False,
        ),
        [(2, 0)],
        [(3, 5)],
    )


@pytest.mark.parametrize(("window", "stride"), [(1, 2), (1, 3), (2, 3), (2, 4), (3, 5)])
@pytest.mark.parametrize("op", ["MAX_POOL_2D", "AVERAGE_POOL_2D"])
def test_pools_of_open_sizes_whose_strides_skip_elements(op: str, window: int, stride: int) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, (1, 8, 6, 2)).astype(np.float32)
    options = {"filter_height": 3, "filter_width": window, "stride_h": 3, "stride_w": stride, "padding": "SAME"}
    shapes = [[(1, n, 5, 2)] for n in (1, 3, 4, 9)]
    check(lambda g: g.op(op, [g.given(x, open_axes=[1])], **options, fused_activation_function="RELU"))
    check(lambda g: g.op(op, [g.given(x, open_axes=[1, 2])], **options, fused_activation_function="RELU"), *shapes)


def test_a_masked_end_of_a_counted_slice_is_refused() -> None:
    """LiteRT sizes the result by the count, and fills it to the end of the axis."""
    with pytest.raises(onnxtfl.errors.UnsupportedError, match="end_mask 1 with offset"):
        check(_sliced({"end_mask": 1, "offset": True}, [0, 0, 0], [2, 2, 2], [1, 1, 1]))


@pytest.mark.parametrize(("axis", "kept"), [(0, True), (0, False), (1, False)])
def test_rows_of_features_whose_number_only_a_run_knows(axis: int, kept: bool) -> None:
    """Without keep_num_dims, the kernel makes a row of 3 features of [3, 1] as well."""

    def build(g: Graph) -> Any:
        (rows,) = g.op("MEAN", [g.constant(X[0, :3, :3]), g.given([axis], np.int32)], keep_dims=True)
        return g.op("FULLY_CONNECTED", [rows, g.given(X[:, 0, :3]), ""], keep_num_dims=kept)

    check(build)
