"""int64 computed as int32, for targets whose kernels have no int64 arithmetic.

::

    (%i: int64) %y = Gather(%x, Add(%i, %c: int64))      ->     (%i: int32) %y = Gather(%x, Add(%i, %c': int32))

Inputs and outputs of int64 become int32 (`HeldTypes`). That computed values fit is an assumption of the conversion
unless it is proved; a constant that does not fit is an error.
"""

from __future__ import annotations

from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.facts import fits_int32
from onnxtfl.ir.graph import Graph
from onnxtfl.ir.types import DType
from onnxtfl.passes.types.held_types import HeldTypes
from onnxtfl.rewriting.int64 import Narrowing, is_int64


def narrow_int64(graph: Graph) -> HeldTypes:
    """Compute int64 as int32 in `graph`, also inputs and outputs. UnsupportedError for constants that do not fit."""
    names = graph.names_of_outputs
    both = [*((v, v.name or "") for v in graph.inputs), *zip(graph.outputs, names, strict=True)]
    held = HeldTypes({name: (DType.INT64, DType.INT32, False) for value, name in both if is_int64(value)})
    _assume_range(graph)
    narrow_int64_in_region(graph)
    return held


def narrow_int64_in_region(graph: Graph) -> None:
    """Compute int64 as int32 in a region, or in a graph whose inputs and outputs are already recorded."""
    Narrowing(graph).run()


def _assume_range(graph: Graph) -> None:
    """Record the assumption that inputs and results computed from them fit into int32."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.results)]
    found = [v for v in values if is_int64(v) and not v.is_constant and not fits_int32(v)]
    if found:
        names = [v.name for v in found if v.name][:3]
        more = f"{len(found) - len(names)} others" if len(found) > len(names) else ""
        listed = ", ".join([*names, *([more] if more else [])])
        assume(f"int64 is computed as int32: values are from -2**31 to 2**31 - 1 in {listed}")
