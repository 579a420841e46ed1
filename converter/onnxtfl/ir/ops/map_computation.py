"""Map: a graph from scalars to a scalar, applied to each index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxtfl.ir.attributes import Axes, Body
from onnxtfl.ir.data import Array
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.interpret import run
from onnxtfl.ir.op import Attributes, Elementwise, Operand, SharedAxes
from onnxtfl.ir.region_types import region_of
from onnxtfl.ir.shapes import check_agree, normalize_axes
from onnxtfl.ir.types import Type


class Map(Elementwise):
    """`computation`, a graph from scalars to a scalar, applied to the elements of the operands at each index.

    The operands have one shape, which the result has too; scalars apply to all indices. `dimensions`: all axes, in any
    order (empty: all of them), as in XLA. Not core: decomposed to the ops of the computation, on whole tensors; these
    have to be elementwise. Source: neutral-ops 3.75; XLA Map.
    """

    operands = (Operand("operands", variadic=True),)
    attributes = {"computation": Body(), "dimensions": Axes(())}
    shared_axes = SharedAxes(None, ("dimensions",))

    @classmethod
    def infer(cls, node: Node) -> Sequence[Type]:
        tensors = [node.operand(i) for i in range(len(node.operands))]
        types = [v.tensor_type for v in tensors]
        ranked = [t.shape for t in types if t.shape != ()]
        for shape in ranked:
            if shape is not None and ranked[0] is not None:
                check_agree(shape, ranked[0], "the shape of an operand")
        body = region_of(node, "computation", [Value(t.with_shape(())) for t in types])
        if len(body.outputs) != 1 or body.outputs[0].tensor_type.shape != ():
            raise ValueError(f"the computation returns {', '.join(str(v.type) for v in body.outputs)}, not a scalar")
        shape = cls.shape(*tensors)
        dimensions = node.attr("dimensions")
        if dimensions and shape is not None and sorted(normalize_axes(dimensions, len(shape))) != [*range(len(shape))]:
            raise ValueError(f"dimensions {list(dimensions)} of rank {len(shape)}")
        return [body.outputs[0].tensor_type.with_shape(shape)]

    @classmethod
    def evaluate(cls, attributes: Attributes, *operands: Array | None) -> Array:
        arrays = np.broadcast_arrays(*(np.asarray(x) for x in operands))
        body = attributes["computation"]
        result = np.empty(arrays[0].shape, body.outputs[0].tensor_type.storage.numpy)
        for index in np.ndindex(result.shape):
            (result[index],) = run(body, [np.asarray(x[index]) for x in arrays])
        return result
