"""Each module of kernels/ names the source of its kernel, and tests that compare it with that kernel."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

from onnxtfl.kernels.multipliers import divide_by_power, multiply_by_factor

ROOT = Path(__file__).resolve().parents[2]
_MODULES = [path for path in sorted((ROOT / "converter/onnxtfl/kernels").glob("*.py")) if path.stem != "__init__"]


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.stem)
def test_a_kernel_has_a_source_and_a_test(path: Path) -> None:
    said = re.sub(r"\s+", " ", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")
    match = re.search(r"Source: (?:LiteRT|ONNX Runtime) .+\. Test: (.+)\.$", said)
    assert match is not None, said
    named = re.findall(r"(tests/\S+\.py) \(([^)]+)\)", match[1])
    assert named
    for file, functions in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert all(f"\ndef {function}(" in text for function in functions.split(", ")), (file, functions)


def test_products_are_rounded_twice() -> None:
    """A quarter of 1 is a half after the first step, which rounds it up, and 1/2 of that is rounded away from 0."""
    x = np.arange(-6, 7)
    assert divide_by_power(x, 2).tolist() == [-2, -1, -1, -1, -1, 0, 0, 0, 1, 1, 1, 1, 2]
    assert multiply_by_factor(x, 0.25).tolist() == [-2, -1, -1, -1, -1, 0, 0, 1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize("factor", [0.75, 1 / 3, 5.0, 2.0**-20, 3e-10])
def test_products_are_the_nearest_integers_or_one_of_two_steps_of_rounding(factor: float) -> None:
    x = np.random.default_rng(0).integers(-(2**23), 2**23, 1000)
    assert np.abs(multiply_by_factor(x, factor) - x * factor).max() <= 0.5 + 0.5 * min(factor, 1) + 1e-2


def test_a_factor_too_small_for_a_shift_is_0_and_large_operands_saturate() -> None:
    assert multiply_by_factor(np.asarray([2**31 - 1, -(2**31)]), 2.0**-33).tolist() == [0, 0]
    assert multiply_by_factor(np.asarray([2**30, -(2**30)]), 4.0).tolist() == [2**30, -(2**30)]
