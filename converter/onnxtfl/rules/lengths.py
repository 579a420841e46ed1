"""The last states of recurrent layers under lengths of sequences."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.reshape import unsqueezed


def with_steps(b: Builder, states: Sequence[Value], lengths: object, initial: object) -> Sequence[Value]:
    """The last states [batch, cells] of directions; those of sequences of length 0 are 0, as in ONNX Runtime.

    `lengths`: [batch], integers; None where all sequences have steps. `initial`: None where the initial states are 0.
    """
    if initial is None or not isinstance(lengths, Value) or (lengths.is_constant and (lengths.numpy() > 0).all()):
        return states
    valid = Term(b, unsqueezed(b, lengths, [1])) > Term(b, b.scalar(0, lengths))
    return [valid.choose(Term(b, state), 0.0).value for state in states]
