"""Two recurrent layers over the same input, one in each direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxtfl.dataclass import dataclass
from onnxtfl.ir.attributes import Choice, Flag, Float, Several, Text
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Derived
from onnxtfl.ir.graph import OPS, Node, Value
from onnxtfl.ir.op import Attributes, Operand, attributes_of
from onnxtfl.ir.ops.concatenation import Concatenate
from onnxtfl.ir.ops.recurrence import Recurrent, operands_of

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
        directions = _directions(operands, attributes)
        forward, backward = (b.many(d.kind, *d.given.values(), **d.attributes) for d in directions)
        return [b(Concatenate, forward[0], backward[0], axis=2), *forward[1:], *backward[1:]]

    @classmethod
    def result_dtype(cls, index: int, given: Sequence[Any], attributes: Attributes) -> Any:
        return given[0].dtype


@dataclass(frozen=True)
class Direction:
    """A direction of a layer of `kind`: its operands by name (None for absent ones), and its attributes."""

    kind: type[Recurrent]
    given: Mapping[str, Value | None]
    attributes: Mapping[str, Any]

    def operand(self, name: str) -> Value:
        """Return an operand that is present."""
        value = self.given[name]
        assert value is not None
        return value


def directions_of(node: Node) -> list[Direction]:
    """Return the directions of a layer, the forward one first."""
    attributes = attributes_of(node)
    if node.op is Bidirectional:
        return _directions(node.operands, attributes)
    assert issubclass(node.op, Recurrent)
    return [Direction(node.op, operands_of(node), attributes)]


def _directions(operands: Sequence[Value | None], attributes: Attributes) -> list[Direction]:
    kind, found = OPS[attributes["layer"]], []
    assert issubclass(kind, Recurrent)
    shared = {n: v for n, v in attributes.items() if n in kind.defaults and n not in _OF_EACH}
    for i in range(2):
        half, count = len(operands) // 2, len(attributes["activations"]) // 2
        values = kind.padded(operands[i * half :][:half])
        given = dict(zip((o.name for o in kind.operands), values, strict=True))
        separate = {n: attributes[n][i * count :][:count] for n in _OF_EACH}
        found.append(Direction(kind, given, {**shared, **separate, "reverse": i == 1}))
    return found
