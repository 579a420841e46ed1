"""The last states of recurrent layers with sequence lengths."""

from __future__ import annotations

from onnxtfl.ir.builder import Builder
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Value
from onnxtfl.ir.reshape import unsqueezed


def with_steps(b: Builder, last: Value, lengths: object, initial: object, axis: int) -> Value:
    """Return the last states (rank 3) of directions; 0 for sequences of length 0, as in ONNX Runtime.

    `lengths`: integers [batch]; None if no sequence is empty. `initial`: None if the initial states are 0.
    `axis`: the batch axis.
    """
    if initial is None or not isinstance(lengths, Value) or (lengths.is_constant and (lengths.numpy() > 0).all()):
        return last
    others = [a for a in range(last.rank) if a != axis]
    valid = Term(b, unsqueezed(b, lengths, others)) > Term(b, b.scalar(0, lengths))
    return valid.choose(Term(b, last), 0.0).value
