"""Functions without a TFLite op, recognized by their formulas in .tflite files.

::

    %r = Relu(%x)                                      %y = Softplus(%x)
    %e = Exp(Neg(Abs(%x)))
    %s = Div(%e, Add(%e, 2))                     ->
    ... a polynomial of %s ...
    %y = Add(%r, ...)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from onnxtfl.ir import ops
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.op import Op
from onnxtfl.ir.symbols import symbol_scope
from onnxtfl.ir.types import DType
from onnxtfl.passes.canonical.simplify import SIMPLIFY
from onnxtfl.passes.canonical.templates import Template, patterns_of
from onnxtfl.rewriting.legalize import legalize
from onnxtfl.rewriting.pass_manager import PassManager
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets.tflite import TfliteTarget

_FLOAT, _INT32, _INT64 = DType.FLOAT32, DType.INT32, DType.INT64
FUNCTIONS: tuple[tuple[type[Op], tuple[DType, ...], dict[str, Any]], ...] = (
    (ops.Softplus, (_FLOAT,), {"threshold": math.inf}),
    *((op, (_FLOAT,), {}) for op in (ops.Mish, ops.Erf, ops.Tan, ops.Asin, ops.Acos, ops.Atan)),
    *((op, (_FLOAT,), {}) for op in (ops.Sinh, ops.Cosh, ops.Asinh, ops.Acosh, ops.Atanh, ops.IsNaN, ops.IsInf)),
    (ops.IsInf, (_FLOAT,), {"detect_negative": False}),
    (ops.IsInf, (_FLOAT,), {"detect_positive": False}),
    (ops.Elu, (_FLOAT,), {"parameters": ("alpha",)}),
    (ops.HardSigmoid, (_FLOAT,), {"slope": 1 / 6, "offset": 0.5}),
    (ops.Rem, (_FLOAT, _FLOAT), {}),
    *(
        (op, (dtype, dtype), {"sizes": sizes})
        for op in (ops.Div, ops.Rem)
        for dtype in (_INT32, _INT64)
        for sizes in ((), (1,), (0, 1))
    ),
    *((op, (dtype,), {}) for op in (ops.Sign, ops.Abs) for dtype in (_INT32, _INT64)),
)
"""The ops recognized by their TFLite form: dtypes of operands, and attributes, or `sizes` and `parameters`
(see Template).
"""


def _written_for_tflite(graph: Graph) -> None:
    """Legalize the op for TFLite, so that each formula has one definition, and templates follow its changes."""
    legalize(graph, TfliteTarget())
    PassManager([SIMPLIFY], given=frozenset({"neutral"})).run(graph)


def _by_formula() -> Iterator[Template]:
    """Return templates of ops that TFLite files contain as the op's formula."""
    yield Template.of(ops.HardSigmoid, parameters=("slope", "offset"))
    yield Template.of(ops.Selu, parameters=("alpha", "gamma"))
    yield Template.of(ops.Celu, parameters=("alpha",))
    yield Template.of(ops.ThresholdedRelu, parameters=("alpha",))
    for finite, reshaped, keepdims in (
        (True, True, False),
        (False, True, False),
        (False, False, False),
        (False, False, True),
    ):
        formula = functools.partial(_log_sum_exp, finite=finite, reshaped=reshaped)
        yield Template.of(ops.FunctionReduce, formula, absent=(1,), kind="log_sum_exp", keepdims=keepdims)
    for kind in ("log_sum_exp", "log_sum", "l2", "l1", "sum_square"):
        for keepdims in (True, False):
            yield Template.of(ops.FunctionReduce, absent=(1,), kind=kind, keepdims=keepdims)


def _log_sum_exp(x: Term, axes: Term, kind: str, keepdims: bool, finite: bool, reshaped: bool) -> Term:
    """Return the variants of TensorFlow's formula: the maximum is added unchanged, only if finite, or reshaped."""
    top = x.reduce("max", axes)
    shift = (top.abs() < math.inf).choose(top, 0.0) if finite else top
    total = (x - shift).exp().reduce("sum", axes, keepdims).log()
    if reshaped:
        return total + shift.apply(ops.Reshape, x.b.graph.add_input(axes.value.type))
    return total + (shift if keepdims else shift.reduce("sum", axes, keepdims=False))


@functools.cache
@symbol_scope()
def templates() -> tuple[Template, ...]:
    """Return templates for `FUNCTIONS` without a TFLite kernel, the longest formulas first, then the others."""
    found = [Template.of(op, dtypes=dtypes, written=_written_for_tflite, **more) for op, dtypes, more in FUNCTIONS]
    return (*sorted((t for t in found if t.root.op is not t.op), key=lambda t: -len(t.nodes)), *_by_formula())


@functools.cache
def _patterns() -> tuple[tuple[Template, Patterns], ...]:
    """Return one pattern per template, in order, since a short formula may be a part of a longer one."""
    return tuple((template, patterns_of(template)) for template in templates())


def recognize_formulas(graph: Graph) -> bool:
    """Replace formulas by their functions; return whether any was found."""
    changed, present = False, {node.op for node in graph.nodes}
    for template, patterns in _patterns():
        if template.needs <= present and patterns.apply(graph):
            changed, present = True, {node.op for node in graph.nodes}
    return changed
