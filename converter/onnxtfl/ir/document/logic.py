"""And, Or and Xor with `broadcast_dimensions`."""

from onnxtfl.ir.document.broadcast_dimensions import declare_broadcast
from onnxtfl.ir.ops.logic import And, Or, Xor

for _op in (And, Or, Xor):
    declare_broadcast(_op)
