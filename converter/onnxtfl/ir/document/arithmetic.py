"""Add and Div with `broadcast_dimensions`."""

from onnxtfl.ir.document.broadcast_dimensions import declare_broadcast
from onnxtfl.ir.ops.arithmetic import Add, Div

for _op in (Add, Div):
    declare_broadcast(_op)
