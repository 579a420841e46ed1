"""The passes that replace element types without TFLite kernels, in order."""

from __future__ import annotations

from functools import partial
from typing import Literal

from onnxtfl.passes.canonical.simplify import SIMPLIFY
from onnxtfl.passes.types.floats import compute_in_float32, compute_region_in_float32, narrow_float64
from onnxtfl.passes.types.int64 import narrow_int64, narrow_int64_in_region
from onnxtfl.passes.types.small_types import IoDtype, hold_in_region, hold_small_types
from onnxtfl.passes.types.uint8 import compute_uint8_in_int32
from onnxtfl.rewriting.pass_manager import EVERYWHERE, Fact, Group, Pass
from onnxtfl.rewriting.target import Target


def replaced_types(
    target: Target,
    float64: Literal["narrow", "error"],
    io_dtype: IoDtype,
    float16: Literal["float32", "native"] = "float32",
) -> list[Pass]:
    """Return the passes for these options (:mod:`onnxtfl.options`); float16 becomes float32 if not convertible."""
    io_dtype = "float32" if io_dtype == "source" and not target.has_float16 else io_dtype
    needs: frozenset[Fact] = frozenset({"neutral"})
    floats = partial(compute_in_float32, keeps_boundary=io_dtype != "float32", native=float16 == "native")
    return [
        Pass("narrow", partial(narrow_float64, mode=float64), EVERYWHERE, needs=needs),
        Pass("small types", partial(hold_small_types, io_dtype=io_dtype), hold_in_region, needs=needs),
        Pass("floats", floats, compute_region_in_float32, needs=needs),
    ]


def int64_passes(target: Target) -> list[Pass | Group]:
    """Return the passes for a target without int64 arithmetic and uint8 conversions; none for others."""
    needs: frozenset[Fact] = frozenset({"neutral"})
    int64 = Pass("int64", narrow_int64, narrow_int64_in_region, needs=needs)
    uint8 = Pass("uint8", compute_uint8_in_int32, EVERYWHERE, needs=needs)
    return [] if target.has_int64 else [uint8, int64, SIMPLIFY]
