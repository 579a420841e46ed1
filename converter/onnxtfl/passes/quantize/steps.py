"""Functions of one int8 element as convolutions, for targets that compute on integers only.

::

    %a = Convert(%q: int8) : float32
    %b = Erf(%a)                       ->     %y = Conv(Relu(Conv(%q, ...)), ...)     (ir/ramps.py)
    %y = Convert(%b) : int8

Replaced are elements computed in float, or by an op that only the target's fallback has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dims import product
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.interpret import evaluate_node
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.quantization import limits
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.ramps import function_of_bytes
from onnxtfl.passes.canonical.dead_code import remove_dead
from onnxtfl.targets import Target

_MOST_NODES = 64
"""The most ops of a function that is replaced."""
_STORED = np.arange(-128, 128, dtype=np.int8)


@dataclass
class _Function:
    """The ops by which a value is computed from one quantized `source`, in topological order."""

    source: Value
    nodes: list[Node]

    def tables(self) -> tuple[Array, Array] | None:
        """The result in steps, float64 and as integers, for each stored element of the source; None if there is NaN.

        The float64 numbers are not rounded if the last op quantizes a real number.
        """
        *inner, last = self.nodes
        values: dict[Value, Array] = {self.source: _STORED}
        wanted = quantization_of(last.result)
        with np.errstate(all="ignore"):
            for node in inner:
                values[node.result] = _evaluated(node, values)
            real = rounded = np.broadcast_to(_evaluated(last, values), _STORED.shape).astype(np.float64)
            if wanted is not None and last.op is ops.Convert and not last.operand(0).is_quantized:
                steps = _element(values, last.operand(0)).astype(np.float64) / wanted.scales[0]
                real = np.broadcast_to(np.clip(steps + wanted.zero_points[0], *limits(wanted.dtype)), _STORED.shape)
        return None if np.isnan(real).any() else (real, rounded)


def _evaluated(node: Node, values: Mapping[Value, Array]) -> Array:
    return evaluate_node(node, [None if v is None else _element(values, v) for v in node.operands])[0]


def _element(values: Mapping[Value, Array], value: Value) -> Array:
    return value.stored().reshape(()) if value.is_constant else values[value]


def write_steps(graph: Graph, target: Target) -> None:
    """Replace each function of one int8 element that would not run on the target itself."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in reversed(places):
        if node.graph is graph and _is_byte(node.results) and _is_elsewhere(node, target):
            _replace(graph, node, places)
    remove_dead(graph)


def _is_elsewhere(node: Node, target: Target) -> bool:
    form = target.accepted(node)
    return form is not None and target.falls_back(node, form)


def _is_byte(values: Iterable[Value]) -> bool:
    """Whether all are int8 tensors of known sizes, with one scale each."""
    return all(
        (q := quantization_of(v)) is not None and q.per_tensor and q.storage == "int8" and v.is_static for v in values
    )


def _replace(graph: Graph, root: Node, places: Mapping[Node, int]) -> None:
    function = _function(root, places)
    if function is None or function.source.shape != root.result.shape or 0 in root.result.shape:
        return
    tables, wanted = function.tables(), quantization_of(root.result)
    if tables is None or wanted is None or tables[1].min() == tables[1].max():
        return
    b = Builder(graph, root, maker="write steps")
    graph.replace(root, [function_of_bytes(b, function.source, wanted, *tables)])


def _function(root: Node, places: Mapping[Node, int]) -> _Function | None:
    """The function whose result is that of `root`; None if it depends on several values, or on other positions.

    Ops are followed up to int8 values, and further if these are several.
    """
    nodes, leaves = {root}, _operands(root)
    while _is_of_elements(root) and len(nodes) <= _MOST_NODES:
        if len(leaves) == 1 and _is_byte(leaves):
            return _Function(leaves.pop(), sorted(nodes, key=places.__getitem__))
        made = [node for v in leaves if (node := v.producer) is not None and node in places]
        last = max(made, key=places.__getitem__, default=None)
        if last is None or not _is_of_elements(last):
            return None
        nodes.add(last)
        leaves = (leaves - {last.result}) | _operands(last)
    return None


def _operands(node: Node) -> set[Value]:
    return {v for v in node.present_operands if not v.is_constant}


def _is_of_elements(node: Node) -> bool:
    """Whether each element of the result depends on one of each operand, with equal constants for all."""
    is_pure = node.is_pure and not node.regions and len(node.results) == 1
    constants = (v for v in node.present_operands if v.is_constant)
    return is_pure and issubclass(node.op, Elementwise) and all(product(v.shape) == 1 for v in constants)
