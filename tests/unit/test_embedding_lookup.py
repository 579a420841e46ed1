"""EMBEDDING_LOOKUP of quantized tables with real results, and which scales of blocks and axes kernels read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from onnxtfl.formats.tflite import schema
from tests.harness.litert import Array, run_onnx, run_tflite
from tests.unit.test_tflite_reader import file_of, table

RNG = np.random.default_rng(5)
PLACES = np.array([5, 0, 3, 5], np.int32)
BITS = {"INT2": 2, "INT4": 4, "INT8": 8, "UINT8": 8}
EACH = {"scale": tuple(i / 64 for i in range(1, 7)), "zero_point": (0,) * 6}


def details(kind: str, **fields: Any) -> dict[str, Any]:
    number = schema.unions()["QuantizationDetails"].index(kind) + 1
    return {"details_type": number, "details": (schema.table(kind), fields)}


def written(op: str, version: int, x: Any, weights: Any, result: Any, **options: Any) -> bytes:
    """One op on weights, whose table is given without their bytes; the scales of blocks are tensor 2, float16."""
    size = int(np.prod(weights["shape"])) * BITS[weights["type"]]
    data = RNG.integers(0, 256, -(-size // 8)).astype(np.uint8).tobytes()
    scales = (np.arange(1, 25) / 64).astype(np.float16)
    tensors = [
        table("Tensor", name="x", **x),
        table("Tensor", name="w", buffer=1, **weights),
        table("Tensor", name="scales", buffer=2, shape=scales.shape, type="FLOAT16"),
        table("Tensor", name="y", **result),
    ]
    node = table("Operator", inputs=(0, 1, -1) if options else (0, 1), outputs=(3,), **options)
    main = table("SubGraph", tensors=tensors, inputs=(0,), outputs=(3,), operators=[node])
    code = table("OperatorCode", builtin_code=op, version=version)
    return file_of(subgraphs=[main], buffers=[{}, {"data": data}, {"data": scales.tobytes()}], operator_codes=[code])


def lookup(weights: Any, kind: str = "FLOAT32") -> bytes:
    result = {"shape": (4, *weights["shape"][1:]), "type": kind}
    return written("EMBEDDING_LOOKUP", 4, {"shape": (4,), "type": "INT32"}, weights, result)


def product(weights: Any) -> bytes:
    options = schema.table("FullyConnectedOptions"), {}
    number = schema.unions()["BuiltinOptions"].index("FullyConnectedOptions") + 1
    given = {"builtin_options_type": number, "builtin_options": options}
    return written("FULLY_CONNECTED", 13, {"shape": (3, 32)}, weights, {"shape": (3, 6)}, **given)


def check(data: bytes, x: Array) -> None:
    ((_, wanted),) = run_tflite(data, [x], kernels="builtin")
    (found,) = run_onnx(onnxtfl.tflite_to_onnx(data, check=False).data or b"", {"x": x}).values()
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=0, atol=0 if x.dtype == np.int32 else 1e-4)


@pytest.mark.parametrize("result", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("each", [True, False], ids=["each row", "one scale"])
@pytest.mark.parametrize("kind", BITS)
def test_rows_of_quantized_tables(kind: str, each: bool, result: str) -> None:
    scales = EACH if each else {"scale": (0.5,), "zero_point": (0,)}
    check(lookup({"shape": (6, 2, 8), "type": kind, "quantization": scales}, result), PLACES)


@pytest.mark.parametrize(("kind", "length"), [("INT4", 5), ("INT2", 6), ("INT2", 5)])
def test_packed_rows_that_do_not_fill_bytes(kind: str, length: int) -> None:
    """LiteRT reads each row from the start of a byte."""
    check(lookup({"shape": (6, length), "type": kind, "quantization": EACH}), PLACES)


@pytest.mark.parametrize("result", ["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("kind", ["INT2", "INT4"])
def test_rows_of_blocks(kind: str, result: str) -> None:
    blocks = details("BlockwiseQuantization", scales=2, zero_points=-1, block_size=8)
    check(lookup({"shape": (6, 32), "type": kind, "quantization": blocks}, result), PLACES)


def test_products_of_2_bits() -> None:
    x = RNG.standard_normal((3, 32)).astype(np.float32)
    check(product({"shape": (6, 32), "type": "INT2", "quantization": EACH}), x)


def test_details_that_no_kernel_reads() -> None:
    """LiteRT reads the scales beside them."""
    quantization = EACH | details("CustomQuantization", custom=b"abc")
    check(product({"shape": (6, 32), "type": "INT8", "quantization": quantization}), RNG.random((3, 32), np.float32))


@pytest.mark.parametrize("kind", ["INT8", "INT2"])
def test_blocks_that_kernels_read_as_zeros_are_refused(kind: str) -> None:
    blocks = details("BlockwiseQuantization", scales=2, zero_points=-1, block_size=8)
    with pytest.raises(UnsupportedError, match=f"reads no blockwise scales of {kind.lower()}"):
        onnxtfl.tflite_to_onnx(product({"shape": (6, 32), "type": kind, "quantization": blocks}), check=False)


def test_scales_of_several_axes_are_refused() -> None:
    axes = details("MultiAxisQuantization", scales=2, zero_points=-1, quantized_dimensions=(0, 1))
    with pytest.raises(UnsupportedError, match="no TFLite kernel reads scales of several axes"):
        onnxtfl.tflite_to_onnx(lookup({"shape": (6, 4), "type": "INT8", "quantization": axes}), check=False)
