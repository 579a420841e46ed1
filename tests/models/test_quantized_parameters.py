"""Scales and zero points come out as they went in, bit for bit, and integers take as much space as before."""

from __future__ import annotations

import itertools
import json
import math
import struct

import pytest

from onnxtfl import onnx_to_tflite, tflite_to_onnx
from tests.models.corpus import CORPUS
from tests.models.scales import Parameters, of_onnx, of_tflite

pytestmark = pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS} (ONNXTFL_CORPUS)")

_SMALL = 1 << 20
"""The size in bytes below which names and tables are a large part of a file."""
_KERNELS = {1 / 256, 1 / 32768, 1.0}
"""The scales that kernels fix: SOFTMAX's and LOGISTIC's; and that of a stored 1, a product with which rounds better
than QUANTIZE does."""
_ZERO = 128
"""The zero point of 0 in int8, counted from the least integer."""
_TABLES = 256 << 10
"""The bytes of the tables that an int16 SOFTMAX is in ONNX."""
_ZEROS = ("q_einsum", "v_einsum")
"""Files whose products LiteRT computes as zeros, as the ONNX model does."""
_RECURRENT = ("lstm", "scrambled")
"""Names of files with recurrent ops, which compute on floats that are rounded in each step."""


def _names(folder: str, key: str) -> list[str]:
    path = CORPUS / folder / "index.json"
    entries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [entry[key] for entry in entries if entry["kind"] not in ("float", "float16", "non-float")]


def _real_scales(found: set[Parameters]) -> set[float]:
    return {struct.unpack("<f", bytes.fromhex(scale))[0] for parameters in found for scale, _ in parameters}


def _of_no_effect(found: set[Parameters]) -> set[float]:
    """The scales of addends that are less than half a step of any other tensor, like the epsilon of a normalization."""
    scales = sorted(_real_scales(found))
    return {small for small, next_one in itertools.pairwise(scales) if 256 * small < next_one / 2}


@pytest.mark.parametrize("name", _names("onnx", "name"))
def test_onnx_to_tflite_to_onnx(name: str) -> None:
    source = (CORPUS / "onnx" / name / "model.onnx").read_bytes()
    before = of_onnx(source)
    result = onnx_to_tflite(source, check=False).data
    assert result is not None
    between = of_tflite(result)
    # uint8 weights that lie beside int8 are counted from their zero point
    from_zero = {tuple((scale, _ZERO) for scale, _ in parameters) for parameters in before}
    assert _real_scales(between - before - from_zero) <= _KERNELS
    # a scale that is not finite is no quantization, and makes constants of what is computed from it;
    # a stored 1 is a value to pad with, stored like what is padded
    if all(map(math.isfinite, _real_scales(before))):
        counted = {tuple(scale for scale, _ in parameters) for parameters in between}
        lost = {parameters for parameters in before if tuple(scale for scale, _ in parameters) not in counted}
        assert _real_scales(lost) <= {1.0} | _of_no_effect(before)
    back = tflite_to_onnx(result, check=False).data
    assert back is not None
    assert of_onnx(back) <= between
    assert between - of_onnx(back) <= of_tflite(result, small_constants=True)
    assert max(len(result), len(back) - (_TABLES if "int16" in name else 0)) <= 1.05 * len(source)


@pytest.mark.parametrize("name", _names("tflite", "file"))
def test_tflite_to_onnx_to_tflite(name: str) -> None:
    source = (CORPUS / "tflite" / name).read_bytes()
    result = tflite_to_onnx(source, check=False).data
    assert result is not None
    if any(part in name for part in _RECURRENT):
        pytest.skip("recurrent ops compute on floats")
    if any(part in name for part in _ZEROS):
        assert of_onnx(result) <= of_tflite(source) | {((struct.pack("<f", 1).hex(), 128),)}
        return
    # added zeros are nothing but other steps: their own parameters may go
    assert of_onnx(result) <= of_tflite(source)
    assert of_tflite(source) - of_onnx(result) <= of_tflite(source, small_constants=True)
    back = onnx_to_tflite(result, check=False).data
    assert back is not None
    assert of_tflite(back) <= of_tflite(source)
    assert of_tflite(source) - of_tflite(back) <= of_tflite(source, small_constants=True)
    if len(source) > _SMALL:
        assert max(len(result), len(back)) <= 1.05 * len(source)
