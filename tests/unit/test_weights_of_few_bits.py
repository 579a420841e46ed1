"""MatMulNBits of com.microsoft: weights that are constants or inputs, and how its rounding is checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxtfl
from onnxtfl.errors import UnsupportedError
from tests.harness.litert import Array
from tests.unit.test_microsoft_ops import RNG, compare, made, normal

N, BLOCK = 12, 32


def product(
    bits: int, k: int, zeros: str = "", order: bool = False, given: bool = False, **attributes: Any
) -> tuple[bytes, dict[str, Array]]:
    """A model and its inputs; `zeros`: "integer" or "float"; `given`: the weights are inputs."""
    per, count = 8 // bits, -(-k // BLOCK)
    weights: dict[str, Array] = {
        "w": RNG.integers(0, 256, (N, count, BLOCK // per)).astype(np.uint8),
        "s": (RNG.random(N * count) / 2**bits).astype(np.float32),
    }
    if zeros == "integer":
        weights["z"] = RNG.integers(0, 256, N * -(-count // per)).astype(np.uint8)
    if zeros == "float":
        weights["z"] = (RNG.random(N * count) * 8).astype(np.float32)
    if order:
        weights["g"] = RNG.integers(0, count, k).astype(np.int32)
    names = ",".join(["a", "w", "s", "z" if zeros else "", "g" if order else ""]).rstrip(",")
    a = {"a": normal(3, k)}
    x, constants = (a | weights, {}) if given else (a, weights)
    return made("MatMulNBits", x, 1, constants, names, K=k, N=N, bits=bits, block_size=BLOCK, **attributes), x


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(
    ("bits", "zeros"), [(2, ""), (2, "integer"), (4, ""), (4, "integer"), (4, "float"), (8, "integer")]
)
@pytest.mark.parametrize("k", [64, 80])
def test_blocks_along_the_columns(bits: int, zeros: str, k: int, given: bool) -> None:
    compare(*product(bits, k, zeros, given=given))


@pytest.mark.parametrize("zeros", ["", "float"])
@pytest.mark.parametrize("given", [False, True])
def test_columns_that_say_their_block(zeros: str, given: bool) -> None:
    compare(*product(4, 80, zeros, order=True, given=given))


def test_what_the_kernel_misreads() -> None:
    with pytest.raises(UnsupportedError, match="g_idx"):
        onnxtfl.onnx_to_tflite(product(4, 64, "integer", order=True)[0], check=False)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_kernel_that_rounds_the_other_operand(bits: int) -> None:
    """With `accuracy_level` 4 ONNX Runtime rounds it to int8: the source is computed without this."""
    report = onnxtfl.onnx_to_tflite(product(bits, 64, "integer", accuracy_level=4)[0], check="require").check
    assert report is not None and report.outputs[0].accepted_by == "float32-reference"
