"""Weights of language models: the integers and scales that LiteRT's kernels read, and what these compute."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxtfl
from onnxtfl.formats import files
from onnxtfl.ir.data import ArrayData
from onnxtfl.ir.dtypes import DType
from onnxtfl.ir.graph import Value
from onnxtfl.ir.quantization import dequantize
from onnxtfl.options import Options
from onnxtfl.pipeline import inspect, onnx_to_tflite_entries
from tests.harness.litert import Array, run_tflite
from tests.unit.test_stored_weights import packed
from tests.unit.test_weights_of_few_bits import made

ROWS, RUNTIME = 12, "litert-2.3"
F = np.float32


class Blocks:
    """Random weights [ROWS, columns] of 4 or 8 bits, as MatMulNBits has them."""

    def __init__(self, bits: int, columns: int, block: int, *, zeros: bool = False, signs: bool = True) -> None:
        rng, self.bits, self.columns, self.block = np.random.default_rng(columns + bits), bits, columns, block
        count = columns // block
        self.integers = rng.integers(0, 1 << bits, (ROWS, columns))
        scales = (rng.random((ROWS, count)) + 0.5) / (1 << bits)
        signed = np.where(rng.random(scales.shape) < 0.5, -1, 1) if signs else 1
        self.scales = (scales.astype(np.float16) * signed).astype(F)
        half = 1 << (bits - 1)
        self.zeros = rng.integers(0, 1 << bits, (ROWS, count)) if zeros else np.full((ROWS, count), half)
        self.has_zeros = zeros
        self.x = rng.standard_normal((3, columns)).astype(F)

    @property
    def real(self) -> Array:
        scales, zeros = (np.repeat(v, self.block, 1) for v in (self.scales, self.zeros))
        return np.asarray(((self.integers - zeros) * scales).astype(F))

    def packed(self, values: Array) -> Array:
        per = 8 // self.bits
        return np.asarray(sum(values[:, k::per] << self.bits * k for k in range(per))).astype(np.uint8)

    def model(self, x: Array | None = None) -> bytes:
        weights = self.packed(self.integers).reshape(ROWS, self.columns // self.block, -1)
        constants = {"w": weights, "s": self.scales.reshape(-1)}
        constants |= {"z": self.packed(self.zeros).reshape(-1)} if self.has_zeros else {}
        attributes = {"K": self.columns, "N": ROWS, "bits": self.bits, "block_size": self.block}
        given = {"a": self.x if x is None else x}
        return made("MatMulNBits", given, 1, constants, ",".join(["a", *constants]), **attributes)


def converted(model: bytes, **options: Any) -> bytes:
    options = {"dynamic_quant": "hybrid", "min_runtime": RUNTIME} | options
    return onnxtfl.onnx_to_tflite(model, check=False, **options).data or b""


def constants_of(data: bytes) -> tuple[list[Value], list[Value]]:
    """The weights of products with scales of blocks, and those of the other products."""
    products = [node.operand(1) for node in files.read(data).main.nodes if node.op.name == "tfl.FULLY_CONNECTED"]
    return [v for v in products if v.is_quantized], [v for v in products if not v.is_quantized]


def stored_weights(data: bytes, block: int) -> Array:
    """The real weights of which the products of a file are the sum."""
    of_blocks, terms = constants_of(data)
    real = []
    for value in of_blocks:
        quantization = value.tensor_type.quantization
        assert quantization is not None and quantization.block == max(block, 32) and value.data is not None
        real.append(dequantize(value.data.numpy(), quantization))
    real += [np.repeat(value.numpy(), block, 1) for value in terms]
    return np.sum(np.asarray(real, np.float64), axis=0)


def check_product(weights: Blocks, data: bytes, factor: float = 1.0) -> None:
    """LiteRT's result is the product of the real weights, up to its rounding of rows to 255 steps."""
    ((_, found),) = run_tflite(data, [weights.x])
    steps = (weights.x.max(1).clip(0) - weights.x.min(1).clip(None, 0)) / 255
    read = sum(np.abs(dequantize(v.data.numpy(), v.tensor_type.quantization)) for v in constants_of(data)[0])  # type: ignore[union-attr, arg-type]
    bound = 0.51 * steps[:, None] * factor * np.asarray(read).sum(1) + 1e-5
    assert (np.abs(found - weights.x @ weights.real.T) <= bound).all()


@pytest.mark.parametrize(
    ("bits", "columns", "block", "zeros", "signs"),
    [
        (4, 64, 32, False, False),
        (4, 64, 32, False, True),
        (4, 128, 64, True, True),
        (4, 256, 128, True, False),
        (8, 64, 32, False, True),
        (8, 128, 64, True, True),
        (2, 64, 32, False, False),
        (2, 256, 64, True, True),
        (2, 128, 16, True, True),
        (4, 64, 16, False, True),
        (4, 128, 16, True, False),
        (8, 64, 16, True, True),
    ],
)
def test_weights_are_carried_bit_for_bit(bits: int, columns: int, block: int, zeros: bool, signs: bool) -> None:
    weights = Blocks(bits, columns, block, zeros=zeros, signs=signs)
    data = converted(weights.model())
    np.testing.assert_array_equal(stored_weights(data, block).astype(F), weights.real)
    check_product(weights, data)


def test_the_bytes_of_symmetric_weights() -> None:
    """Elements lose their offset, which inverts a bit of each; scales become float16."""
    weights = Blocks(4, 64, 32, signs=False)
    data = converted(weights.model())
    assert (weights.packed(weights.integers) ^ 0x88).tobytes() in data
    assert weights.scales.astype(np.float16).tobytes() in data
    assert not constants_of(data)[1]


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_report_tells_of_rounded_scales(is_exact: bool) -> None:
    weights = Blocks(4, 64, 32)
    weights.scales *= 1 if is_exact else F(1 / 3)
    conversion = onnxtfl.onnx_to_tflite(weights.model(), check=False, dynamic_quant="hybrid", min_runtime=RUNTIME)
    assert ("1 op has weights whose scales are no float16" in conversion.table(True)) == (not is_exact)


def test_without_hybrid_kernels_the_product_is_exact() -> None:
    weights = Blocks(4, 64, 32)
    ((_, found),) = run_tflite(converted(weights.model(), dynamic_quant="exact"), [weights.x])
    np.testing.assert_allclose(found, weights.x @ weights.real.T, atol=1e-5)


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_columns_in_any_order_of_blocks(is_shuffled: bool) -> None:
    """`g_idx` tells the block of each column: columns and the elements of activations are sorted by it."""
    weights = Blocks(4, 128, 32)
    groups = np.arange(128) // 32
    groups = np.random.default_rng(2).permutation(groups) if is_shuffled else groups
    rows = {"w": weights.packed(weights.integers).reshape(ROWS, 4, -1), "s": weights.scales.reshape(-1)}
    rows["g"] = groups.astype(np.int32)
    attributes = {"K": 128, "N": ROWS, "bits": 4, "block_size": 32}
    data = converted(made("MatMulNBits", {"a": weights.x}, 1, rows, "a,w,s,,g", **attributes))
    real = (weights.integers - 8) * weights.scales[:, groups]
    order = np.argsort(groups, kind="stable")
    np.testing.assert_array_equal(stored_weights(data, 32).astype(F), real[:, order].astype(F))
    ops_ = [node.op.name for node in files.read(data).main.nodes]
    assert ("tfl.GATHER" in ops_) == is_shuffled and "tfl.DEQUANTIZE" not in ops_
    ((_, found),) = run_tflite(data, [weights.x])
    wanted = weights.x @ real.T
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


def test_an_odd_number_of_blocks_of_16() -> None:
    """Two of them are no block of 32: the builtin kernel reads them as they are."""
    weights = Blocks(4, 48, 16, zeros=True)
    data = converted(weights.model())
    (value,) = constants_of(data)[0]
    quantization = value.tensor_type.quantization
    assert quantization is not None and quantization.block == 16
    check_product(weights, data)


@pytest.mark.parametrize("signs", [False, True])
def test_a_last_block_that_is_not_full(signs: bool) -> None:
    """The other operand gets zeros for its other elements."""
    columns, block = 80, 32
    weights = Blocks(4, 96, block, signs=signs)
    rows = {"w": weights.packed(weights.integers).reshape(ROWS, -1, block // 2), "s": weights.scales.reshape(-1)}
    x = weights.x[:, :columns].copy()
    attributes = {"K": columns, "N": ROWS, "bits": 4, "block_size": block}
    data = converted(made("MatMulNBits", {"a": x}, 1, rows, "a,w,s", **attributes))
    weights.x = np.concatenate([x, np.zeros((3, 96 - columns), F)], 1)
    np.testing.assert_array_equal(stored_weights(data, block).astype(F), weights.real)
    ((_, found),) = run_tflite(data, [x])
    wanted = weights.x @ weights.real.T
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


@pytest.mark.parametrize("scale", [1.0, 2.0**-20, 2.0**30])
def test_scales_become_the_nearest_float16(scale: float) -> None:
    """Those outside of its range are multiplied by a power of 2, and the result is divided by it."""
    weights = Blocks(4, 64, 32)
    weights.scales = (np.random.default_rng(0).random(weights.scales.shape).astype(F) + 1) * F(scale)
    weights.scales[1, 0] = 0
    data = converted(weights.model())
    ((_, found),) = run_tflite(data, [weights.x])
    wanted = weights.x @ weights.real.T
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
    of_blocks, terms = constants_of(data)
    quantization = of_blocks[0].tensor_type.quantization
    assert quantization is not None and not terms
    kept = weights.scales.reshape(-1) > 0
    ratio = np.asarray(quantization.scales)[kept] / weights.scales.reshape(-1)[kept]
    factor = 2.0 ** np.round(np.log2(ratio[0]))
    np.testing.assert_allclose(ratio, factor, rtol=2**-11)


@pytest.mark.parametrize("type_", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("is_turned", [False, True])
def test_dequantized_blocks_of_a_matrix(type_: int, axis: int, is_turned: bool) -> None:
    """DequantizeLinear with blocks along the contracted axis, in either order of the axes, also transposed."""
    rng, block = np.random.default_rng(1), 32
    low, high = {1: (-8, 8), 0: (0, 16)}[type_ in (TensorProto.INT4, TensorProto.INT8)]
    if type_ in (TensorProto.INT8, TensorProto.UINT8):
        low, high = low * 16, high * 16
    shape = (64, ROWS) if axis == 0 else (ROWS, 64)
    blocked = tuple(n // block if i == axis else n for i, n in enumerate(shape))
    stored, zeros = rng.integers(low, high, shape), rng.integers(low, high, blocked)
    scales = (rng.random(blocked) + 0.5).astype(np.float16).astype(F)
    x = rng.standard_normal((2, 64)).astype(F)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["r"], axis=axis, block_size=block),
        *([helper.make_node("Transpose", ["r"], ["t"], perm=[1, 0])] if is_turned else []),
        helper.make_node("Gemm", ["x", "t" if is_turned else "r"], ["y"], transB=axis ^ is_turned),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 64]), ("y", [2, ROWS]))]
    constants = [packed("w", stored, type_), numpy_helper.from_array(scales, "s"), packed("z", zeros, type_)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data = converted(model.SerializeToString())
    real = (stored - np.repeat(zeros, block, axis)) * np.repeat(scales, block, axis)
    real = real.T if axis == 0 else real
    np.testing.assert_array_equal(stored_weights(data, block).astype(F), real.astype(F))
    ((_, found),) = run_tflite(data, [x])
    wanted = x @ real.T
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


def table_of_blocks(weights: Blocks, *, is_tied: bool) -> bytes:
    """Rows of a table [ROWS, columns], which is also (`is_tied`) the weights of a product with them."""
    how = {"bits": weights.bits, "block_size": weights.block, "domain": "com.microsoft"}
    packed_rows, zeros = weights.packed(weights.integers), weights.packed(weights.zeros)
    constants = {"w": packed_rows.reshape(ROWS, weights.columns // weights.block, -1), "s": weights.scales}
    constants |= (
        {"flat": np.asarray(packed_rows.shape), "z": zeros}
        if weights.has_zeros
        else {"flat": np.asarray(packed_rows.shape)}
    )
    more = ["z"] if weights.has_zeros else []
    rows = ["t", "i", "s", *more]
    nodes = [
        helper.make_node("Reshape", ["w", "flat"], ["t"]),
        helper.make_node("GatherBlockQuantized", rows, ["y"], gather_axis=0, quantize_axis=1, **how),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, weights.columns])]
    if is_tied:
        how |= {"K": weights.columns, "N": ROWS}
        nodes.append(helper.make_node("MatMulNBits", ["y", "w", "s", *more], ["p"], **how))
        outputs.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, [4, ROWS]))
    tensors = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    given = [helper.make_tensor_value_info("i", TensorProto.INT64, [4])]
    graph = helper.make_graph(nodes, "g", given, outputs, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


@pytest.mark.parametrize("is_tied", [False, True])
@pytest.mark.parametrize(
    ("bits", "block", "zeros"), [(4, 32, False), (4, 32, True), (4, 16, False), (8, 32, False), (8, 32, True)]
)
def test_rows_of_a_table_of_blocks(bits: int, block: int, zeros: bool, is_tied: bool) -> None:
    """LiteRT's kernel reads them exactly, and products the same constants."""
    weights = Blocks(bits, 4096, block, zeros=zeros)
    data = converted(table_of_blocks(weights, is_tied=is_tied))
    places = np.asarray([3, ROWS - 1, 0, 3])
    found = {len(v[0]): v for _, v in run_tflite(data, [places])}[weights.columns]
    np.testing.assert_array_equal(found, weights.real[places])
    nodes = files.read(data).main.nodes
    tables = [n.operand(1) for n in nodes if n.op.name == "tfl.EMBEDDING_LOOKUP" and n.operand(1).is_quantized]
    assert len(tables) == (bits // 4) * (2 if block == 16 else 1)
    if is_tied:
        stored = np.concatenate(list(ArrayData(tables[0].data.numpy(), DType.INT4).chunks())).tobytes()  # type: ignore[union-attr]
        assert data.count(stored) == 1 and {t.data.key for t in tables} == {v.data.key for v in constants_of(data)[0]}  # type: ignore[union-attr]


def test_back_to_onnx() -> None:
    """The reverse conversion has the same rounding as LiteRT."""
    weights = Blocks(4, 64, 32, zeros=True)
    data = converted(weights.model())
    back = onnxtfl.tflite_to_onnx(data)
    assert back.check is not None and back.check.ok


def test_signatures_share_weights(tmp_path: Path) -> None:
    """A file is opened once for each signature, and its weights are stored once."""
    weights = Blocks(4, 64, 32)
    model = onnx.load_from_string(weights.model())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, tmp_path / "model.onnx")
    entries = {
        str(n): Options(dims={"n": n}, dynamic_quant="hybrid", min_runtime=RUNTIME, record=False) for n in (1, 4)
    }
    out = io.BytesIO()
    onnx_to_tflite_entries(out, {key: (tmp_path / "model.onnx", options) for key, options in entries.items()})
    found = stored_weights(out.getvalue(), 32)
    np.testing.assert_array_equal(found.astype(F), weights.real)
    integers = constants_of(out.getvalue())[0][0].data
    assert integers is not None
    stored = np.concatenate(list(ArrayData(integers.numpy(), DType.INT4).chunks())).tobytes()
    assert out.getvalue().count(stored) == 1


@pytest.mark.parametrize("signs", [False, True])
def test_no_pass_reads_the_real_weights_after_products(signs: bool) -> None:
    """Their dequantization is removed: reading millions of scales to a type takes longer than all else."""
    options = Options(dynamic_quant="hybrid", min_runtime=RUNTIME)
    graph = inspect(Blocks(4, 64, 32, signs=signs).model(), "block weights", options)
    assert {node.op.name for node in graph.nodes}.isdisjoint({"DequantizeLinear", "Transpose", "Slice"})


def test_weights_are_not_held(tmp_path: Path) -> None:
    """Integers, scales and terms are computed in pieces when they are written."""
    rows, columns, block = 4096, 8192, 32
    count = columns // block
    tensors, location = [], tmp_path / "weights"
    with location.open("wb") as out:
        for name, shape, type_ in (("w", (rows, count, 16), np.uint8), ("s", (rows, count), F)):
            content = np.full(shape, 7 if name == "w" else -0.5, type_).tobytes()
            made_ = onnx.TensorProto(name=name, dims=shape, data_location=TensorProto.EXTERNAL)
            made_.data_type = helper.np_dtype_to_tensor_dtype(np.dtype(type_))
            for key, value in (("location", "weights"), ("offset", str(out.tell())), ("length", str(len(content)))):
                made_.external_data.add(key=key, value=value)
            tensors.append(made_)
            out.write(content)
    attributes = {"K": columns, "N": rows, "bits": 4, "block_size": block, "domain": "com.microsoft"}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **attributes)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, s]) for n, s in (("x", columns), ("y", rows))]
    graph = helper.make_graph([node], "g", values[:1], values[1:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())
    options = {"check": False, "load": False, "dynamic_quant": "hybrid", "min_runtime": RUNTIME}
    converted(Blocks(4, 64, 32).model())  # what is imported and cached the first time
    tracemalloc.start()
    try:
        onnxtfl.onnx_to_tflite(tmp_path / "m.onnx", tmp_path / "m.tflite", **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "m.tflite").stat().st_size > rows * columns // 2
    assert peak < 48 << 20, peak


def test_float16_weights_of_two_signatures_are_stored_once() -> None:
    """The fastest kernel for one row and that for many read weights in different orders, unless both are as fast."""
    weights = np.random.default_rng(0).standard_normal((512, 768)).astype(np.float16)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT16, [1, "n", size]) for n, size in (("x", 512), ("y", 768))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    out = io.BytesIO()
    onnx_to_tflite_entries(out, {f"of_{n}": (model, Options(input_shapes={"x": (1, n, 512)})) for n in (32, 1)})
    assert weights.nbytes < len(out.getvalue()) < 1.1 * weights.nbytes
