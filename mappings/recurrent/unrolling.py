"""The choice of a recurrent layer's TFLite form: unrolled steps, a loop, or a kernel."""

from __future__ import annotations

import math

from onnxtfl.ir import ops
from onnxtfl.ir.budget import current_budget
from onnxtfl.ir.dims import known_sizes
from onnxtfl.ir.graph import Node

KERNEL_ACTIVATIONS = {
    "NONE": "none", "RELU": "relu", "RELU_N1_TO_1": "relu_n1_to_1", "RELU6": "relu6", "TANH": "tanh",
}  # fmt: skip
"""The activations of the layer kernels, by the names of TFLite's options."""
MOST_UNROLLED = 128
"""The most steps that are unrolled."""
MOST_WITHOUT_LOOPS = 1 << 10
"""The same for targets without loops."""
_BYTES_OF_LOOP = 5000
"""How many bytes the loop of an LSTM is larger than its kernel in a file, weights excluded."""


def most_steps() -> int:
    """Return the most steps of a layer that are unrolled."""
    return {"fast": MOST_UNROLLED, "none": MOST_WITHOUT_LOOPS}.get(current_budget().loops, 1)


def is_smaller_as_loop(node: Node) -> bool:
    """Whether the loop of the LSTM `node` with weights in int8 is smaller than its kernel with float weights.

    False if all outputs are used: a loop needs more memory than the kernel to collect them. A loop copies its input
    twice; a byte of memory counts like four bytes of a file.
    """
    x, outputs = node.operand(0), node.results[0]
    if current_budget().loops != "small quantized" or node.op is not ops.Lstm or node.graph is None:
        return False
    if outputs.uses or node.graph.is_output(outputs):
        return False
    weights = sum(v.data.nbytes for v in node.operands[1:3] if v is not None and v.data is not None)
    elements = known_sizes(x.shape)
    copies = 2 * math.prod(elements) * x.dtype.bits // 8
    return len(elements) == x.rank and weights * 3 // 4 > _BYTES_OF_LOOP + 4 * copies
