"""The smallest models of what mutants showed: each converts, or is refused in one line that names the node."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.formats.tflite.writer import write
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Value, constant
from onnxtfl.ir.model import Model
from onnxtfl.ir.quantization import Quantization
from onnxtfl.ir.ranges import magnitude
from onnxtfl.ir.signs import MOST_VISITS, never_negative
from onnxtfl.ir.types import DType, TensorType, tensor
from onnxtfl.passes.templates import constants_equal
from onnxtfl.passes.unit_axes import sink_reshapes


def onnx_file(
    nodes: Sequence[NodeProto], shape: Sequence[int | str] | None, constants: dict[str, Any], opset: int = 21
) -> bytes:
    """A model of an input x and the last node's output."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    y = helper.make_empty_tensor_value_info(nodes[-1].output[0])
    graph = helper.make_graph(nodes, "g", [x], [y], stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def node(op: str, inputs: str, **attributes: Any) -> NodeProto:
    """A node of the name "n"."""
    return helper.make_node(op, inputs.split(), ["y"], name="n", **attributes)


F = np.float32
_REFUSED_ONNX = {
    "an axis of 2^40 elements": (node("Identity", "x"), [2**40], {}),
    "40 axes": (node("Relu", "x"), [1] * 40, {}),
    "a Resize to 2^40": (
        node("Resize", "x e e s", mode="nearest"),
        [1, 1, 2, 2],
        {"e": np.zeros(0, F), "s": np.asarray([1, 1, 2, 2**40])},
    ),
    "a wrapped Pad by 2^32": (node("Pad", "x p", mode="wrap"), [3], {"p": np.asarray([0, 2**31 - 9])}),
    "pools with negative padding": (node("MaxPool", "x", kernel_shape=[2], pads=[-2, 1]), [1, 1, 9], {}),
    "blocks of -2 elements": (
        node("QuantizeLinear", "x s z", axis=1, block_size=-2),
        [2, 4],
        {"s": F(1), "z": np.int8(0)},
    ),
    "blocks with one scale": (
        node("QuantizeLinear", "x s z", axis=1, block_size=2),
        [2, 4],
        {"s": F(1), "z": np.int8(0)},
    ),
    "scales of two axes for a tensor of none": (
        node("DequantizeLinear", "c s z", axis=0),
        [1],
        {"c": np.int8(1), "s": np.ones((1, 1), F), "z": np.zeros((1, 1), np.int8)},
    ),
    "columns of 2^40 blocks": (
        node("Col2Im", "x i b", strides=[1, 1]),
        [1, 5, 5],
        {"i": np.asarray([2**40, 5]), "b": np.asarray([1, 5])},
    ),
    "lengths of fewer sequences": (
        node("ReverseSequence", "x l", batch_axis=0, time_axis=1),
        [16, 4],
        {"l": np.asarray([1, 2, 3, 4])},
    ),
    "a norm of 3 channels on 1": (
        node("InstanceNormalization", "x s t"),
        [1, 1, 5],
        {"s": np.ones(3, F), "t": np.ones(3, F)},
    ),
    "a group norm of 3 channels on 1": (
        node("GroupNormalization", "x s t", num_groups=1),
        [1, 1, 5],
        {"s": np.ones(3, F), "t": np.ones(3, F)},
    ),
    "a layer norm whose bias is larger than its input": (
        node("LayerNormalization", "x s t"),
        [2, 1],
        {"s": np.ones(1, F), "t": np.ones(4, F)},
    ),
    "slopes of more channels": (node("PRelu", "x s"), [1, 1, 2], {"s": np.ones((3, 1), F)}),
    "a Gemm whose C is larger than the product": (
        node("Gemm", "x w c"),
        [1, 2],
        {"w": np.ones((2, 3), F), "c": np.ones((4, 3), F)},
    ),
    "samples at 2^31 places": (
        node("DeformConv", "x w o"),
        [1, 1, 3, 3],
        {"w": np.ones((1, 1, 1, 1), F), "o": np.ones((1, 2, 0, 2**31 - 1), F)},
    ),
    "a grid of another rank": (node("AffineGrid", "x s"), [1, 2, 3], {"s": np.asarray([1, 1, 4])}),
    "regions of 2^30 cells": (
        node("RoiAlign", "x r i", output_height=2**15, output_width=1, sampling_ratio=2**15),
        [1, 1, 4, 4],
        {"r": np.ones((1, 4), F), "i": np.zeros(1, np.int64)},
    ),
    "updates of another shape": (
        node("ScatterND", "x i u", reduction="min"),
        [4, 4],
        {"i": np.asarray([[0], [1]]), "u": np.ones((3, 4), F)},
    ),
    "a mel matrix that is wider than its spectrum": (
        node("MelWeightMatrix", "b l r m n"),
        [1],
        {"b": np.asarray(4), "l": np.asarray(8), "r": np.asarray(1), "m": F(0), "n": F(1e9)},
    ),
    "a table without keys": (node("LabelEncoder", "x", domain="ai.onnx.ml", values_floats=[1.0]), [3], {}),
    "a Split into 2^31 parts of one result": (node("Split", "x", num_outputs=2**31), [2**31], {}),
    "an affine grid of 2^40 places": (
        node("AffineGrid", "x s"),
        [1, 2, 3],
        {"s": np.asarray([1, 1, 2**20, 2**20])},
    ),
    "100,000 new axes": (node("Unsqueeze", "x a"), [1], {"a": np.arange(100_000)}),
    "antialiasing of 10^5 elements to half": (
        node("Resize", "x e e s", mode="cubic", antialias=1),
        [1, 1, 10**5, 2],
        {"e": np.zeros(0, F), "s": np.asarray([1, 1, 50_000, 1])},
    ),
    "states of other sequences": (
        helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["", "y"], name="n", hidden_size=1),
        [3, 0, 1],
        {"w": np.ones((1, 4, 1), F), "r": np.ones((1, 4, 1), F), "h": np.ones((1, 1, 1), F)},
    ),
    "cells of other sequences": (
        helper.make_node("LSTM", ["x", "w", "r", "", "", "", "c"], ["", "y"], name="n", hidden_size=1),
        [3, 1, 1],
        {"w": np.ones((1, 4, 1), F), "r": np.ones((1, 4, 1), F), "c": np.ones((1, 5, 1), F)},
    ),
    "weights of fewer gates": (
        helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], name="n", hidden_size=1),
        [3, 2, 1],
        {"w": np.ones((1, 1, 1), F), "r": np.ones((1, 4, 1), F)},
    ),
    "recurrent weights of no gates": (
        helper.make_node("GRU", ["x", "w", "r"], ["", "y"], name="n", hidden_size=7),
        [3, 2, 1],
        {"w": np.ones((1, 0, 1), F), "r": np.ones((1, 0, 7), F)},
    ),
    "a grid of one axis, of a map of unknown rank": (node("GridSample", "x g"), None, {"g": np.ones(17, F)}),
}


@pytest.mark.parametrize("name", _REFUSED_ONNX)
def test_refused_onnx(name: str) -> None:
    found, shape, constants = _REFUSED_ONNX[name]
    with pytest.raises((onnxtfl.InvalidModelError, onnxtfl.UnsupportedError)) as error:
        onnxtfl.onnx_to_tflite(onnx_file([found], shape, constants), check=False)
    assert "\n" not in str(error.value) and error.value.code != "E-RUN-005"


def tflite_file(op: str, operands: Sequence[Any], *results: TensorType, **options: Any) -> bytes:
    """A model of one op: operands that are types are inputs, others constants."""
    graph = Graph()
    given = [
        graph.add_input(x, f"x{i}")
        if isinstance(x, TensorType)
        else x
        if x is None or isinstance(x, Value)
        else constant(x)
        for i, x in enumerate(operands)
    ]
    graph.outputs = Builder(graph).foreign("tfl", op, given, [*results], **options)
    out = io.BytesIO()
    write(Model(graph), out)
    return out.getvalue()


def quantized(values: Any) -> Value:
    """Integers that a file declares to be real values."""
    found = constant(np.asarray(values, np.int32))
    found.type = TensorType(DType.FLOAT32, found.shape, Quantization("int32", (0.1,), (0,)))
    return found


_INT16_IMAGE = tensor("float32", 1, 4, 5, 2).stored_as(Quantization("int16", (0.01,), (0,)))
_REFUSED_TFLITE = {
    "crops of one axis for two blocks": (
        "BATCH_TO_SPACE_ND",
        [tensor("float32", 4, 2, 2, 1), np.asarray([2, 2], np.int32), np.asarray([[0, 0]], np.int32)],
        tensor("float32", 1, 4, 4, 1),
        {},
    ),
    "a one-hot axis of 2^31 - 1": (
        "ONE_HOT",
        [tensor("int32", 3), np.asarray(2**31 - 1, np.int32), F(1), F(0)],
        tensor("float32", 3, 2**31 - 1),
        {"axis": -1},
    ),
    "batch dims of 1 and 3": (
        "GATHER",
        [tensor("float32", 1, 4), tensor("int32", 3, 2)],
        tensor("float32", 1, 2),
        {"axis": 1, "batch_dims": 1},
    ),
    "a part of a concatenation that is absent": (
        "CONCATENATION",
        [tensor("float32", 2), None],
        tensor("float32", 2),
        {"axis": 0},
    ),
    "UNPACK into 2^31 - 1 tensors of one result": (
        "UNPACK",
        [tensor("float32", 2**31 - 1)],
        tensor("float32"),
        {"num": 2**31 - 1},
    ),
    "sizes of 2^31 - 1 axes": (
        "FILL",
        [tensor("int32", 2**31 - 1), F(1)],
        tensor("float32", 1),
        {},
    ),
    "a bias for other features": (
        "FULLY_CONNECTED",
        [tensor("float32", 2, 3), np.ones((4, 3), F), np.ones(1, F)],
        tensor("float32", 2, 4),
        {},
    ),
    "ids of more rows": (
        "UNSORTED_SEGMENT_SUM",
        [np.ones((3, 2), F), tensor("int32", 6), np.asarray(2, np.int32)],
        tensor("float32", 2, 2),
        {},
    ),
    "crops of -2^31, of an open batch": (
        "BATCH_TO_SPACE_ND",
        [tensor("float32", "n", 4, 4, 2), np.asarray([2, 1], np.int32), np.asarray([[0, 0], [-(2**31), 0]], np.int32)],
        tensor("float32", "m", 8, 4, 2),
        {},
    ),
    "other indices than the kernel writes": (
        "ARG_MIN",
        [tensor("float32", 2, 6), np.asarray(1, np.int32)],
        tensor("float32", 2).stored_as(Quantization("int8", (0.5,), (0,))),
        {"output_type": "INT32"},
    ),
    "the weights of an image of 2^24 rows in fixed point": (
        "RESIZE_BILINEAR",
        [_INT16_IMAGE, np.asarray([1 << 24, 10], np.int32)],
        _INT16_IMAGE,
        {"half_pixel_centers": True},
    ),
    "an update of another type": (
        "DYNAMIC_UPDATE_SLICE",
        [_INT16_IMAGE, tensor("int16", 1, 4, 5, 2), np.zeros(4, np.int32)],
        _INT16_IMAGE,
        {},
    ),
    "four depths of a one-hot axis": (
        "ONE_HOT",
        [np.asarray(1, np.int32), np.arange(4), F(1), F(0)],
        tensor("float32", 4),
        {"axis": -1},
    ),
    "boxes of 8 numbers": (
        "NON_MAX_SUPPRESSION_V4",
        [np.ones((6, 8), F), tensor("float32", 6), np.asarray(3, np.int32), F(0.5), F(0)],
        tensor("int32", 3),
        {},
    ),
    "65,536 sizes for 2 parts": (
        "SPLIT_V",
        [tensor("float32", "n", 5), tensor("int32", 65536), np.asarray(-1, np.int32)],
        tensor("float32", "n", 2),
        {"num_splits": 2},
    ),
    "300 axes": ("NEG", [tensor("float32", *[1] * 300)], tensor("float32", *[1] * 300), {}),
}


@pytest.mark.parametrize("name", _REFUSED_TFLITE)
def test_refused_tflite(name: str) -> None:
    op, operands, result, options = _REFUSED_TFLITE[name]
    with pytest.raises((onnxtfl.InvalidModelError, onnxtfl.UnsupportedError)) as error:
        onnxtfl.tflite_to_onnx(tflite_file(op, operands, result, **options), check=False)
    assert "\n" not in str(error.value) and error.value.code != "E-RUN-005"


def test_a_pool_of_real_values_with_a_quantized_result() -> None:
    scale = Quantization("int8", (0.5,), (0,))
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(TensorType(DType.FLOAT32, (1, 4, 4, 1), scale), "x")
    (real,) = b.foreign("tfl", "DEQUANTIZE", [x], [tensor("float32", 1, 4, 4, 1)])
    window = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    result = TensorType(DType.FLOAT32, (1, 2, 2, 1), scale)
    graph.outputs = b.foreign("tfl", "MAX_POOL_2D", [real], [result], **window)
    out = io.BytesIO()
    write(Model(graph), out)
    with pytest.raises(onnxtfl.InvalidModelError, match="declared as int8, and stored as float32"):
        onnxtfl.tflite_to_onnx(out.getvalue(), check=False)


def test_signs_and_bounds_of_wide_graphs_are_found_in_bounded_time() -> None:
    graph = Graph()
    b = Builder(graph)
    wide: Value = graph.add_input(tensor("int64", 1), "x")
    for _ in range(8):
        parts = [b(ops.Slice, wide, [0], [1], [1]) for _ in range(30)]
        wide = b(ops.Concatenate, *(b(ops.Add, part, part) for part in parts), axis=0)
    assert not never_negative(wide) and magnitude(wide) is None


def test_an_analysis_visits_a_bounded_number_of_values() -> None:
    graph = Graph()
    b = Builder(graph)
    x = graph.add_input(tensor("float32", 1), "x")
    few, many = ([b(ops.Exp, b(ops.Neg, x)) for _ in range(n)] for n in (10, MOST_VISITS + 10))
    assert never_negative(b(ops.Concatenate, *few, axis=0)) and not never_negative(b(ops.Concatenate, *many, axis=0))


def test_the_bound_of_the_least_integer() -> None:
    assert magnitude(constant(np.asarray([-(2**63), 5]))) == 2**63


def test_an_unknown_op_of_an_opset_beyond_32_bits() -> None:
    with pytest.raises(onnxtfl.OnnxtflError, match="sum"):
        onnxtfl.onnx_to_tflite(onnx_file([node("sum", "x")], [2], {}, 1 << 40), check=False)


@pytest.mark.parametrize("shape", [[2, 0], [2, 3]])
def test_determinants_of_no_square(shape: list[int]) -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="no determinant of a"):
        onnxtfl.onnx_to_tflite(onnx_file([node("Det", "x")], shape, {}), check=False)


def test_a_diagonal_without_a_number() -> None:
    model = onnx_file([node("Trilu", "x k")], [4, 5], {"k": np.zeros(0, np.int64)})
    with pytest.raises(onnxtfl.UnsupportedError, match="without an element"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_a_scan_of_more_rounds_than_int32() -> None:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("s", "e", "t")]
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"])], "b", value[:2], value[2:])
    scan = helper.make_node("Scan", ["a", "x"], ["y"], name="n", body=body, num_scan_inputs=1)
    with pytest.raises(onnxtfl.UnsupportedError, match="a loop of 1099511627776 rounds"):
        onnxtfl.onnx_to_tflite(onnx_file([scan], [2**40, 2], {"a": np.ones(2, F)}), check=False)


def calls(count: int, name: str) -> bytes:
    """A chain of functions, each of which calls the next one, the last by a node of this name."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
    last = helper.make_node("Neg", ["a"], ["b"], name=name)
    bodies = [helper.make_node(f"f{i + 1}", ["a"], ["b"], domain="f", name="n") for i in range(count - 1)]
    functions = [
        helper.make_function("f", f"f{i}", ["a"], ["b"], [call], imports) for i, call in enumerate([*bodies, last])
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="f", name="n")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)
    return bytes(model.SerializeToString())


def test_a_long_chain_of_functions() -> None:
    assert onnxtfl.onnx_to_tflite(calls(1500, "n"), check=False, load=False).data


def test_names_inside_of_calls_have_a_largest_length() -> None:
    assert len(onnxtfl.onnx_to_tflite(calls(400, "n" * 100_000), check=False, load=False).data) < 100_000


def test_a_file_of_zeros_ends_at_the_first() -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="at byte 0 has the number 0"):
        onnxtfl.onnx_to_tflite(bytes(1 << 24), check=False)


def test_text_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    path, length = tmp_path / "m.onnx", 1 << 36
    with path.open("wb") as file:
        file.write(b"\x32" + bytes(length >> shift & 0x7F | 0x80 for shift in range(0, 35, 7)) + b"\x02")
        file.truncate(length + 7)
    with pytest.raises(onnxtfl.InvalidModelError, match="MB without the tensors"):
        onnxtfl.onnx_to_tflite(path, check=False)


@pytest.mark.parametrize("scale, zero_point", [(0.5, 300), (0.5, 2**40), (float("nan"), 0)])
def test_quantization_that_no_runtime_computes_with(scale: float, zero_point: int) -> None:
    """ONNX cannot store such a zero point: a wrapped one would be wrong in silence."""
    type_ = tensor("float32", 4).stored_as(Quantization("int8", (scale,), (zero_point,)))
    with pytest.raises(onnxtfl.InvalidModelError, match="is out of range"):
        onnxtfl.tflite_to_onnx(tflite_file("NEG", [type_], type_), check=False)


def test_a_vector_of_sizes_that_has_millions() -> None:
    count = node("ConstantOfShape", "n", value=numpy_helper.from_array(np.ones(1, np.int64)))
    count.output[0] = "s"
    model = onnx_file([count, node("Resize", "x e e s")], [1, 1, 2], {"n": np.asarray([1 << 40]), "e": np.zeros(0, F)})
    with pytest.raises(onnxtfl.OnnxtflError, match="sizes or scales of type tensor<1099511627776xint64> for 3 axes"):
        onnxtfl.onnx_to_tflite(model, check=False)


def test_the_error_names_the_node_and_the_number() -> None:
    with pytest.raises(onnxtfl.OnnxtflError, match=r"1 results for num_outputs=2147483648.*node 'n'"):
        onnxtfl.onnx_to_tflite(onnx_file([node("Split", "x", num_outputs=2**31)], [4], {}), check=False)


def test_a_split_into_more_parts_than_a_tensor_has_axes() -> None:
    parts = helper.make_node("Split", ["x", "s"], [f"y{i}" for i in range(300)], name="n", axis=0)
    model = onnx_file([parts, helper.make_node("Neg", ["y7"], ["y"])], [600], {"s": np.full(300, 2)})
    assert onnxtfl.onnx_to_tflite(model).data


def test_loops_in_loops_with_many_rounds() -> None:
    """A chunk of rounds is a long chain of nodes in a region."""
    kinds = {"i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "v": (TensorProto.FLOAT, [2])}

    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, *kinds[name[0]])

    nodes = [helper.make_node("Add", ["v0", "v0"], ["v1"])]
    for d in (1, 2):
        nodes.append(helper.make_node("Identity", [f"c{d}"], [f"cc{d}"]))
        body = helper.make_graph(
            nodes, "b", [info(f"i{d}"), info(f"c{d}"), info(f"v{2 * d - 2}")], [info(f"cc{d}"), info(f"v{2 * d - 1}")]
        )
        nodes = [helper.make_node("Loop", ["t", "k", f"v{2 * d}"], [f"v{2 * d + 1}"], name="n", body=body)]
    nodes.insert(0, helper.make_node("Identity", ["x"], ["v4"]))
    model = onnx_file(nodes, [2], {"t": np.int64(1000), "k": np.bool_(True)})
    assert onnxtfl.onnx_to_tflite(model, check=False, load=False).data


def test_a_sequence_of_2_40_elements() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["q"], axis=0),
        helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0),
    ]
    with pytest.raises(onnxtfl.UnsupportedError, match="axis of more than"):
        onnxtfl.onnx_to_tflite(onnx_file(nodes, [2**40], {}), check=False)


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_external_data_in_a_loop_of_links(tmp_path: Path) -> None:
    model = onnx.load_from_string(onnx_file([node("Add", "x c")], [4], {"c": np.ones(4, F)}))
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="a.bin")
    (tmp_path / "a.bin").symlink_to("b.bin")
    (tmp_path / "b.bin").symlink_to("a.bin")
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(onnxtfl.InvalidModelError, match="external data is missing"):
        onnxtfl.onnx_to_tflite(tmp_path / "m.onnx", check=False)


def test_entries_of_metadata_that_are_one_buffer() -> None:
    graph = Graph()
    x = graph.add_input(tensor("float32", 4), "x")
    graph.outputs = Builder(graph).foreign("tfl", "NEG", [x], [tensor("float32", 4)])
    model, out = Model(graph), io.BytesIO()
    model.metadata.properties |= {f"k{i}": "v" * 5000 for i in range(9)}
    write(model, out)
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    tables = schema.ModelT.InitFromObj(schema.Model.GetRootAs(out.getvalue(), 0))
    buffer = tables.buffers[tables.metadata[0].buffer]
    buffer.data = np.tile(buffer.data, 20)
    for entry in tables.metadata:
        entry.buffer = tables.metadata[0].buffer
    flatbuffers = pytest.importorskip("flatbuffers")
    builder = flatbuffers.Builder(1024)
    builder.Finish(tables.Pack(builder), b"TFL3")
    with pytest.raises(onnxtfl.InvalidModelError, match="refer to the same bytes too often"):
        onnxtfl.tflite_to_onnx(bytes(builder.Output()), check=False)


_COPIED: dict[str, tuple[int, dict[str, Any], int]] = {
    "MINIMUM": (2, {}, 1),
    "MATRIX_DIAG": (1, {}, 1),
    "REDUCE_MAX": (1, {"keep_dims": True}, 1),
    "SPLIT": (1, {"num_splits": 2}, 2),
}


@pytest.mark.parametrize("op", _COPIED)
def test_kernels_that_copy_integers_ignore_the_scales(op: str) -> None:
    """The check compares with LiteRT."""
    count, options, results = _COPIED[op]
    x = tensor("float32", 2, 4)
    given: list[Any] = [x.stored_as(Quantization("int8", (0.5,), (7 * i,))) for i in range(count)]
    shapes = {"MATRIX_DIAG": (2, 4, 4), "REDUCE_MAX": (2, 1), "SPLIT": (2, 2)}
    types = [
        x.with_shape(shapes.get(op, (2, 4))).stored_as(Quantization("int8", (0.25 * (i + 1),), (3 + i,)))
        for i in range(results)
    ]
    if op == "REDUCE_MAX":
        given.append(np.asarray([1], np.int32))
    if op == "SPLIT":
        given.insert(0, np.asarray(1, np.int32))
    assert onnxtfl.tflite_to_onnx(tflite_file(op, given, *types, **options)).data


def int8(shape: Sequence[int], scale: float = 0.1, zero: int = 3) -> TensorType:
    """A quantized type with one scale."""
    return tensor("float32", *shape).stored_as(Quantization("int8", (scale,), (zero,)))


def weights(
    shape: Sequence[int], storage: str, scales: Sequence[float], zero: int = 0, axis: int | None = None
) -> Value:
    """Quantized constants."""
    found = constant(np.random.default_rng(1).integers(-99, 99, shape).astype(storage))
    parameters = Quantization(storage, tuple(scales), (zero,) * len(scales), axis)
    found.type = tensor("float32", *shape).stored_as(parameters)
    return found


def uint8(shape: Sequence[int]) -> TensorType:
    """A quantized type of uint8."""
    return tensor("float32", *shape).stored_as(Quantization("uint8", (0.1,), (120,)))


def unsigned_weights(shape: Sequence[int], scale: float, zero: int) -> Value:
    """Quantized constants of uint8 around their zero point."""
    found = constant(np.random.default_rng(1).integers(zero - 99, zero + 99, shape).astype("uint8"))
    found.type = tensor("float32", *shape).stored_as(Quantization("uint8", (scale,), (zero,)))
    return found


_WINDOW = {
    "padding": "SAME",
    "stride_w": 1,
    "stride_h": 1,
    "dilation_w_factor": 1,
    "dilation_h_factor": 1,
    "fused_activation_function": "NONE",
}
_RELU = {"fused_activation_function": "RELU"}
_ROWS = np.asarray([[1], [1]], np.int32)
_KERNELS: dict[str, tuple[str, list[Any], list[TensorType], dict[str, Any]]] = {
    "NEG of the integers": ("NEG", [int8((2, 4))], [int8((2, 4), 0.2, -5)], {}),
    "CAST of the integers": ("CAST", [int8((2, 4))], [tensor("float32", 2, 4)], {}),
    "SCATTER_ND adds integers": (
        "SCATTER_ND",
        [_ROWS, int8((2, 4)), np.asarray([3, 4], np.int32)],
        [int8((3, 4), 0.2, -5)],
        {},
    ),
    "TOPK_V2 copies": (
        "TOPK_V2",
        [int8((2, 4)), np.asarray(3, np.int32)],
        [int8((2, 3), 0.2, -5), tensor("int32", 2, 3)],
        {},
    ),
    "CONV_2D with a bias of another scale": (
        "CONV_2D",
        [int8((1, 4, 4, 3)), weights((4, 3, 3, 3), "int8", [0.05]), weights((4,), "int32", [0.5])],
        [int8((1, 4, 4, 4), 0.5)],
        _WINDOW,
    ),
    "CONV_2D with a bias without a scale": (
        "CONV_2D",
        [int8((1, 4, 4, 3)), weights((4, 3, 3, 3), "int8", [0.05]), np.arange(4, dtype=np.int32) * 1000],
        [int8((1, 4, 4, 4), 0.5)],
        _WINDOW,
    ),
    "DEPTHWISE_CONV_2D with zero points of its weights": (
        "DEPTHWISE_CONV_2D",
        [int8((1, 4, 4, 2)), weights((1, 3, 3, 2), "int8", [0.05, 0.02], 40, 3), weights((2,), "int32", [0.005])],
        [int8((1, 4, 4, 2), 0.5)],
        {**_WINDOW, "depth_multiplier": 1},
    ),
    "CONV_2D of uint8 with a zero point of its weights": (
        "CONV_2D",
        [uint8((1, 4, 4, 3)), unsigned_weights((4, 3, 3, 3), 0.05, 130), weights((4,), "int32", [0.005])],
        [uint8((1, 4, 4, 4))],
        _WINDOW,
    ),
    **{
        f"{op} with RELU and another scale of the result": (
            op,
            [int8((1, 4, 4, 2))],
            [int8((1, 4, 4, 2), 0.2, -5)],
            {"padding": "SAME", "stride_w": 1, "stride_h": 1, "filter_height": 2, "filter_width": 2, **_RELU},
        )
        for op in ("MAX_POOL_2D", "AVERAGE_POOL_2D")
    },
}


@pytest.mark.parametrize("name", _KERNELS)
def test_kernels_that_read_integers_otherwise_than_declared(name: str) -> None:
    """The check compares with LiteRT."""
    op, operands, results, options = _KERNELS[name]
    assert onnxtfl.tflite_to_onnx(tflite_file(op, operands, *results, **options)).data


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_scales_that_are_not_positive_are_refused(scale: float) -> None:
    data = tflite_file("ABS", [int8((2, 4))], int8((2, 4), scale))
    with pytest.raises(onnxtfl.UnsupportedError, match="is not positive"):
        onnxtfl.tflite_to_onnx(data, check=False)


@pytest.mark.parametrize("scale", [float("nan"), float("inf")])
def test_scales_that_are_not_finite_are_refused(scale: float) -> None:
    with pytest.raises(onnxtfl.InvalidModelError, match="is out of range"):
        onnxtfl.tflite_to_onnx(tflite_file("ABS", [int8((2, 4))], int8((2, 4), scale)), check=False, load=False)


def test_a_threshold_of_no_elements() -> None:
    given = [tensor("float32", 5, 4), tensor("float32", 5), np.asarray(3, np.int32), F(0.5), np.zeros(0, F)]
    data = tflite_file("NON_MAX_SUPPRESSION_V4", given, tensor("int32", 3), tensor("int32"))
    with pytest.raises(onnxtfl.InvalidModelError, match="not of one element"):
        onnxtfl.tflite_to_onnx(data, check=False)


_STEPS = [("Quantize", "x", "q"), ("Dequantize", "q", "w")]


def test_a_computed_kernel_whose_sizes_only_its_convolution_knows() -> None:
    quantized, real = (helper.make_node(f"{op}Linear", [x, "s", "z"], [y], axis=0) for op, x, y in _STEPS)
    nodes = [quantized, real, node("Conv", "c w", kernel_shape=[3, 3])]
    scales = {"s": F([0.1, 0.2, 0.3, 0.4]), "z": np.zeros(4, np.int8)}
    data = onnx_file(nodes, [4, 2, 3, "n"], {"c": np.ones((1, 2, 5, 5), F), **scales})
    assert onnxtfl.onnx_to_tflite(data, check=False).data


def test_reshapes_do_not_sink_through_results_with_scales_along_an_axis() -> None:
    graph = Graph()
    b = Builder(graph)
    y = b(ops.Abs, b(ops.Reshape, graph.add_input(tensor("float32", 2, 4), "x"), [2, 1, 4]))
    y.type = y.tensor_type.stored_as(Quantization("int8", (0.1, 0.2), (0, 0), axis=0))
    graph.outputs = [y]
    sink_reshapes(graph)
    assert [n.op for n in graph.nodes] == [ops.Reshape, ops.Abs]


def test_constants_of_other_shapes_do_not_match_a_template() -> None:
    assert not constants_equal(np.ones((4, 1, 64), F), np.ones((4, 64, 1), F), 1e-5)
    assert constants_equal(np.ones((64, 1), F), np.ones((4, 64, 1), F), 1e-5)


def test_subnormal_scales_are_refused_in_both_directions() -> None:
    steps = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", "q s z")]
    data = onnx_file(steps, [2], {"s": F(4.6e-41), "z": np.int8(0)})
    with pytest.raises(onnxtfl.UnsupportedError, match="out of the kernel's range"):
        onnxtfl.onnx_to_tflite(data, check=False)
    given, declared = int8((2, 4)), int8((2, 4), 4.6e-41)
    with pytest.raises(onnxtfl.UnsupportedError, match="out of the kernel's range"):
        onnxtfl.tflite_to_onnx(tflite_file("ABS", [given], declared), check=False)
