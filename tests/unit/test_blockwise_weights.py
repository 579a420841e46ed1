"""TFLite's weights with a scale for each block of a row, as FULLY_CONNECTED and EMBEDDING_LOOKUP compute them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxtfl
from onnxtfl.errors import InvalidModelError, OnnxtflError, UnsupportedError
from onnxtfl.formats.tflite import schema
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.onnx_nodes import named_node, onnx_file
from tests.unit.test_tflite_reader import file_of, table

RNG = np.random.default_rng(4)
ROWS, COLUMNS, BLOCK = 6, 64, 32
BLOCKS, PRODUCT = "BlockwiseQuantization", "FullyConnectedOptions"


def model(op: str, scales: Any = None, zero: int = 0, block: int = BLOCK, result: tuple[int, ...] = (3, ROWS)) -> bytes:
    """One op on packed 4-bit weights [ROWS, COLUMNS]; `zero`: of a tensor of zero points."""
    weights = RNG.integers(0, 256, ROWS * COLUMNS // 2).astype(np.uint8).tobytes()
    scales = np.arange(1, ROWS * COLUMNS // BLOCK + 1).astype(np.float16) / 64 if scales is None else scales
    details = {"scales": 2, "zero_points": 3 if zero else -1, "block_size": block}
    kinds = schema.unions()["QuantizationDetails"], schema.unions()["BuiltinOptions"]
    of_blocks, of_product = (k.index(n) + 1 for k, n in zip(kinds, (BLOCKS, PRODUCT), strict=True))
    quantization = {"details_type": of_blocks, "details": (schema.table(BLOCKS), details)}
    shape, kind = ((3, COLUMNS), "FLOAT32") if op == "FULLY_CONNECTED" else ((3,), "INT32")
    tensors = [
        table("Tensor", shape=shape, type=kind, name="x"),
        table("Tensor", shape=(ROWS, COLUMNS), type="INT4", name="w", buffer=1, quantization=quantization),
        table("Tensor", shape=scales.shape, type="FLOAT16", name="scales", buffer=2),
        table("Tensor", shape=(1,), type="INT32", name="zeros", buffer=3),
        table("Tensor", shape=result, name="y"),
    ]
    options = {"builtin_options_type": of_product, "builtin_options": (schema.table(PRODUCT), {})}
    product = op == "FULLY_CONNECTED"
    node = table("Operator", inputs=(0, 1, -1) if product else (0, 1), outputs=(4,), **options if product else {})
    main = table("SubGraph", tensors=tensors, inputs=(0,), outputs=(4,), operators=[node])
    code = table("OperatorCode", builtin_code=op, version=13 if product else 4)
    buffers = [{}, {"data": weights}, {"data": scales.tobytes()}, {"data": np.int32(zero).tobytes()}]
    return file_of(subgraphs=[main], buffers=buffers, operator_codes=[code])


def check(data: bytes, x: Array, atol: float) -> None:
    """ONNX Runtime computes what LiteRT does."""
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data or b"", {"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=atol)


def test_a_product_with_blocks() -> None:
    check(model("FULLY_CONNECTED"), RNG.standard_normal((3, COLUMNS)).astype(np.float32), 1e-3)


def test_rows_of_a_table_with_blocks() -> None:
    check(model("EMBEDDING_LOOKUP", result=(3, COLUMNS)), np.array([5, 0, 2], np.int32), 0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"zero": 1}, UnsupportedError, "blocks with zero points"),
        ({"block": 0}, InvalidModelError, "blocks of 0"),
        ({"block": 48}, InvalidModelError, "do not fit the shape"),
        ({"scales": np.ones(3, np.float16)}, InvalidModelError, "3 scales for blocks of 32"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(options: Any, error: type[OnnxtflError], message: str) -> None:
    with pytest.raises(error, match=message):
        onnxtfl.tflite_to_onnx(model("FULLY_CONNECTED", **options), check=False)


F = np.float32


@pytest.mark.parametrize(("block", "message"), [(2**40, ""), (0, "block_size is 0")])
def test_blocks_of_4_bits(block: int, message: str) -> None:
    """A block that is larger than the weights takes no memory."""
    constants = {"w": np.arange(8, dtype=np.uint8), "s": np.ones(1, F)}
    made = named_node("MatMulBnb4", "x w s", domain="com.microsoft", K=4, N=4, block_size=block, quant_type=0)
    model = onnx.load_from_string(onnx_file([made], [2, 4], constants))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    if not message:
        assert onnxtfl.onnx_to_tflite(model, check=False).data
        return
    with pytest.raises(onnxtfl.InvalidModelError, match=message):
        onnxtfl.onnx_to_tflite(model, check=False)
