"""QUANTIZE and DEQUANTIZE."""

from __future__ import annotations

from collections.abc import Iterator

from tools.probe.case import Array, Case, draw, sizes
from tools.probe.quantized import STORAGES, parameters, symmetric
from tools.probe.registry import probe

from onnxtfl.ir.quantization import Quantization, dequantize, quantize

RANKS = (1, 0, 2, 3, 4, 5, 6, 7, 8)


@probe("QUANTIZE", "DEQUANTIZE")
def quantization(op: str) -> Iterator[Case]:
    """Each storage, per tensor and along the last axis."""
    for storage in (*STORAGES, "int32"):
        for rank in RANKS:
            x = draw("float32", sizes(rank), low=-3, high=3)
            for axis in (None, rank - 1) if rank and storage == "int8" else (None,):
                found = parameters(x, storage) if axis is None else symmetric(x, storage, axis)
                if storage != "int32" or op == "DEQUANTIZE":
                    yield _converted(op, x, found)
    if op == "QUANTIZE":
        for source in STORAGES:
            for target in STORAGES:
                for rank in RANKS:
                    yield _requantized(op, draw("float32", sizes(rank)), source, target)


def _converted(op: str, x: Array, found: Quantization) -> Case:
    stored, real = quantize(x, found), dequantize(quantize(x, found), found)
    kind, extra = f"q{found.storage}", {} if found.per_tensor else {"per_axis": "U" if op == "QUANTIZE" else "T"}
    if op == "QUANTIZE":
        by_position = {("results", 0): found}
        return Case(op, {"T": "float32", "U": kind}, [x], [stored], extra=extra, quantizations=by_position)
    by_position = {("operands", 0): found}
    return Case(op, {"T": kind, "U": "float32"}, [stored], [real], extra=extra, quantizations=by_position)


def _requantized(op: str, x: Array, source: str, target: str) -> Case:
    before, after = parameters(x, source), parameters(x * 1.4, target)
    stored = quantize(x, before)
    y = quantize(dequantize(stored, before), after)
    by_position = {("operands", 0): before, ("results", 0): after}
    return Case(op, {"T": f"q{source}", "U": f"q{target}"}, [stored], [y], quantizations=by_position)
