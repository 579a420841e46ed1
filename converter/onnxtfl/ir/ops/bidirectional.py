"""Two recurrent layers over the same input, one in each direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxtfl.ir.attributes import Choice, Flag, Float, Several, Text
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Derived
from onnxtfl.ir.graph import OPS, Value
from onnxtfl.ir.op import Attributes, Operand
from onnxtfl.ir.ops.concatenation import Concatenate

_OF_EACH = ("activations", "alphas", "betas")


class Bidirectional(Derived):
    """The concatenated outputs [T, N, 2 K] of a forward and a backward layer, then the last states of each.

    `values`: the operands of the forward layer, then those of the backward one, absent ones included. `layer`: the
    name of their op. `activations`, `alphas`, `betas`: those of the forward layer, then those of the backward one;
    `clip`, `linear_before_reset`, `coupled`: of both, as far as the op has them.
    Source: ONNX LSTM, GRU and RNN with direction "bidirectional" (added).
    """

    operands = (Operand("values", variadic=True),)
    results = (Operand("outputs", variadic=True),)
    attributes = {
        "layer": Choice("Lstm", "Gru", "Rnn"),
        "activations": Several(Text()),
        "alphas": Several(Float(), ()),
        "betas": Several(Float(), ()),
        "clip": Float(0.0),
        "linear_before_reset": Flag(False),
        "coupled": Flag(False),
    }

    @classmethod
    def expand(cls, b: Builder, *operands: Value | None, **attributes: Any) -> list[Value]:
        forward, backward = (
            b.many(OPS[attributes["layer"]], *values, **of_each)
            for values, of_each in directions_of(operands, attributes)
        )
        return [b(Concatenate, forward[0], backward[0], axis=2), *forward[1:], *backward[1:]]

    @classmethod
    def result_dtype(cls, index: int, given: Sequence[Any], attributes: Attributes) -> Any:
        return given[0].dtype


Direction = tuple[list[Value | None], dict[str, Any]]
"""The operands and attributes of a layer."""


def directions_of(operands: Sequence[Value | None], attributes: Attributes) -> list[Direction]:
    """Return the operands and attributes of the forward and of the backward layer."""
    half, known = len(operands) // 2, OPS[attributes["layer"]].defaults
    shared = {n: v for n, v in attributes.items() if n in known and n not in _OF_EACH}
    found = []
    for i in range(2):
        parts = {n: attributes[n][i * (len(attributes[n]) // 2) :][: len(attributes[n]) // 2] for n in _OF_EACH}
        found.append((list(operands[i * half :][:half]), {**shared, **parts, "reverse": i == 1}))
    return found
