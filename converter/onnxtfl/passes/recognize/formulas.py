"""Functions that TFLite has no op for, found in the formulas that stand for them in .tflite files.

::

    %r = Relu(%x)                                      %y = Softplus(%x)
    %e = Exp(Neg(Abs(%x)))
    %s = Div(%e, Add(%e, 2))                     ->
    ... a polynomial of %s ...
    %y = Add(%r, ...)
"""

from __future__ import annotations

import functools
from typing import Any

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Op
from onnxtfl.ir.symbols import symbol_scope
from onnxtfl.ir.types import DType
from onnxtfl.passes.recognize.templates import Template
from onnxtfl.rewriting.patterns import Patterns
from onnxtfl.targets.tflite import TfliteTarget

_FLOAT, _INT32, _INT64 = DType.FLOAT32, DType.INT32, DType.INT64
FUNCTIONS: tuple[tuple[type[Op], tuple[DType, ...], dict[str, Any]], ...] = (
    *((op, (_FLOAT,), {}) for op in (ops.Softplus, ops.Mish, ops.Erf, ops.Tan, ops.Asin, ops.Acos, ops.Atan)),
    *((op, (_FLOAT,), {}) for op in (ops.Sinh, ops.Cosh, ops.Asinh, ops.Acosh, ops.Atanh, ops.IsNaN, ops.IsInf)),
    (ops.IsInf, (_FLOAT,), {"detect_negative": False}),
    (ops.IsInf, (_FLOAT,), {"detect_positive": False}),
    (ops.Rem, (_FLOAT, _FLOAT), {}),
    *(
        (op, (dtype, dtype), {"sizes": sizes})
        for op in (ops.Div, ops.Rem)
        for dtype in (_INT32, _INT64)
        for sizes in ((), (1,), (0, 1))
    ),
    *((op, (dtype,), {}) for op in (ops.Sign, ops.Abs) for dtype in (_INT32, _INT64)),
)
"""The ops that are looked for, the element types of their operands, and attributes (`sizes`: see Template)."""


@functools.cache
@symbol_scope()
def templates() -> tuple[Template, ...]:
    """A template for each of `FUNCTIONS` that TFLite has no kernel for, the longest formulas first."""
    target = TfliteTarget()
    found = [Template.of(op, dtypes, target, **attributes) for op, dtypes, attributes in FUNCTIONS]
    return tuple(sorted((t for t in found if t is not None), key=lambda t: -t.size))


@functools.cache
def _patterns() -> tuple[Patterns, ...]:
    """One for each template, in order: a short formula may be a part of a longer one."""
    found = []
    for template in templates():
        patterns = Patterns()
        patterns.on(template.root.op)(functools.partial(_recognized, template=template))
        found.append(patterns)
    return tuple(found)


def _recognized(b: Builder, node: Node, template: Template) -> Value | None:
    operands = template.match(node)
    if operands is None:
        return None
    result = b(template.op, *operands, **template.attributes)
    if result.type == node.result.type:
        return result
    if result.producer is not None and b.created:
        b.graph.remove(b.created.pop())
    return None


def recognize_formulas(graph: Graph) -> bool:
    """Replace formulas by their functions; returns whether any was found."""
    changed = False
    for patterns in _patterns():
        changed = patterns.apply(graph) or changed
    return changed
