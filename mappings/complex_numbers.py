"""The parts of complex numbers, and their absolute value."""

from __future__ import annotations

from onnxtfl.rules import *

row(ops.Real, tfl="REAL", lifts=False)
row(ops.Imag, tfl="IMAG", lifts=False)


@lift_tfl("REAL", "IMAG", "COMPLEX_ABS")
def _tfl_part(b: Builder, node: Node) -> Value:
    """The operand of the Complex that made them, where it is known: ONNX has no kernels for complex elements."""
    x, name = node.operand(0), node.op.name.removeprefix("tfl.")
    made = x.producer if x.producer is not None and x.producer.op is ops.Complex else None
    if made is None:
        return b({"REAL": ops.Real, "IMAG": ops.Imag, "COMPLEX_ABS": ops.Abs}[name], x)
    if name != "COMPLEX_ABS":
        return made.operand(int(name == "IMAG"))
    real, imaginary = (Term(b, v) for v in made.operands if v is not None)
    return (real * real + imaginary * imaginary).sqrt().value
