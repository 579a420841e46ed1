"""Layout: one optimum over the whole graph.

::

    %t = Transpose(%x) [0,2,3,1]            %p = Conv(%x') NHWC
    %c = Conv(%t) NCHW wanted as NHWC  ->   %q = Relu(%p)
    %r = Relu(%c)                           %y = Transpose(%q)       one transpose, where it is cheapest
    %y = Add(%r, %x)

A *label* is a permutation under which a value may lie in memory: physical axis i is logical axis label[i]. Ops with
dimension numbers want one label; others follow by renumbering their axes (`Op.relabel`); a Transpose is only another
name for the same memory. :mod:`labels` finds the labels worth trying, :mod:`program` chooses, :mod:`apply` rewrites.
"""

from onnxtfl.passes.layout.apply import assign_layouts

__all__ = ["assign_layouts"]
