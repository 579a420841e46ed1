"""Layout assignment: one optimum over the whole graph.

::

    %t = Transpose(%x) [0,2,3,1]            %p = Conv(%x') NHWC
    %c = Conv(%t) NCHW wanted as NHWC  ->   %q = Relu(%p)
    %r = Relu(%c)                           %y = Transpose(%q)       one transpose, where it is cheapest
    %y = Add(%r, %x)

An axis order is a permutation in which a value may be stored: axis i in memory is axis order[i] of the value. Ops with
dimension numbers prefer one order (:mod:`onnxtfl.targets.layouts`); others accept any order by renumbering their axes
(`Op.permuted`); a Transpose only renames the axes in memory. :mod:`orders` finds the candidates, :mod:`program` chooses
among them by the costs of transposes and kernels, :mod:`apply` rewrites the graph.
"""

from onnxtfl.passes.layout.apply import assign_layouts
from onnxtfl.passes.layout.boundary_orders import IoLayout, IoLayouts

__all__ = ["IoLayout", "IoLayouts", "assign_layouts"]
