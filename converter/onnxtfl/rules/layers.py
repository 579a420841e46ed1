"""How many steps of a recurrent layer are written out in TFLite, where its kernel or a loop computes it otherwise."""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.budget import current
from onnxtfl.ir.graph import Node

MOST_UNROLLED = 128
"""Steps of the longest sequence that is written out."""
_BYTES_OF_STEP = 2300
"""Bytes of a file that the ops and tensors of one step of an LSTM take, without its weights."""
_AS_KERNELS = ("activations", "coupled", "clip", "cell_clip", "rows", "grids")
"""Attributes of an LSTM whose defaults are what TFLite Micro's kernel computes."""


def most_steps(node: Node) -> int:
    """The most steps of the layer `node` that are written out.

    Of a layer that is quantized later, for TFLite Micro: so few that their ops and weights in int8 take fewer bytes
    than the kernel's weights in float. Loops cannot be quantized.
    """
    compact = current().compact
    if compact == "loops":
        return 1
    if compact != "kernels" or not _is_like_kernels(node):
        return MOST_UNROLLED
    weights = sum(v.data.nbytes for v in node.operands[1:3] if v is not None and v.data is not None)
    return min(MOST_UNROLLED, max(1, weights * 3 // 4 // _BYTES_OF_STEP))


def _is_like_kernels(node: Node) -> bool:
    """Whether the kernel of TFLite Micro computes the layer: an LSTM without peepholes whose last cell is not read."""
    if node.op is not ops.Lstm or node.graph is None:
        return False
    given = dict(zip((o.name for o in node.op.operands), node.op.padded(node.operands), strict=True))
    absent = all(given[n] is None for n in ("lengths", "peepholes", "projection", "projection_bias", "norm"))
    weights = [given[n] for n in ("weights", "recurrent", "bias")]
    constant = all(v is None or v.is_constant for v in weights)
    cell = node.results[2]
    plain = all(node.attr(name) == node.op.defaults[name] for name in _AS_KERNELS)
    read = bool(cell.uses) or node.graph.is_output(cell)
    sizes = all(isinstance(size, int) for size in node.operand(0).shape)
    return absent and constant and plain and sizes and not read
