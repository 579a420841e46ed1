"""Text: StringSplit StringConcat RegexFullMatch."""

from __future__ import annotations

import re

import numpy as np

from onnxtfl.ir.attributes import Integer, Text
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import Shape as Dims
from onnxtfl.ir.dims import fresh_symbol
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import BOOLS, Elementwise, Op, Operand
from onnxtfl.ir.types import DType

_STRINGS = frozenset({DType.STRING})


class StringSplit(Op):
    """The parts of each string between `delimiter`s [..., most parts], rows with fewer end in empty strings; and the
    number of parts of each string.

    An empty string has no parts. `delimiter` None or "": whitespace, also removed at both ends. `maxsplit`:
    the most delimiters that are read, from the left. Source: ONNX StringSplit (added).
    """

    operands = (Operand("input", _STRINGS),)
    results = (Operand("parts", _STRINGS), Operand("counts", frozenset({DType.INT64})))
    attributes = {"delimiter": Text(None), "maxsplit": Integer(None)}
    core = True

    @staticmethod
    def shape(x: Value, *, delimiter: str | None, maxsplit: int | None) -> list[Dims]:
        return [(*x.shape, 0 if 0 in x.shape else fresh_symbol()), x.shape]

    @staticmethod
    def compute(x: Array, *, delimiter: str | None, maxsplit: int | None) -> tuple[Array, Array]:
        most = -1 if maxsplit is None else maxsplit
        texts = [text if delimiter else text.strip() for text in x.reshape(-1).tolist()]
        rows = [text.split(delimiter or None, most) if text else [] for text in texts]
        counts = np.asarray([len(row) for row in rows], np.int64)
        parts = np.full((len(rows), max(counts, default=0)), "", object)
        for i, row in enumerate(rows):
            parts[i, : len(row)] = row
        return parts.reshape(*x.shape, parts.shape[1]), counts.reshape(x.shape)


class StringConcat(Elementwise):
    """Each string of lhs followed by that of rhs, under NumPy broadcasting. Source: ONNX StringConcat (added)."""

    operands = (Operand("lhs", _STRINGS), Operand("rhs", _STRINGS))
    core = True

    @staticmethod
    def compute(a: Array, b: Array) -> Array:
        return np.asarray(a + b, object)


class RegexFullMatch(Elementwise):
    """Whether the whole of each string matches `pattern`, in the syntax of RE2. Source: ONNX RegexFullMatch (added)."""

    operands = (Operand("input", _STRINGS),)
    results = (Operand("output", BOOLS),)
    attributes = {"pattern": Text()}
    core = True

    @staticmethod
    def compute(x: Array, *, pattern: str) -> Array:
        found = [re.fullmatch(pattern, text) is not None for text in x.reshape(-1).tolist()]
        return np.asarray(found, bool).reshape(x.shape)
