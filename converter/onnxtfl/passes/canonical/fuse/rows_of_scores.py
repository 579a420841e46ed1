"""Scores of an attention in which several heads read the same keys: the rows of all heads stay as they were multiplied.

::

    %s = Reshape(%p : [b, h, g*n, c]) : [b, h*g, n, c]       %w = Reshape(BroadcastTo(%m, [b, 1, g, n, c]))
    %a = Softmax(Add(%s, %m : [b, 1, n, c]))           ->    %y = Softmax(Add(%p, %w : [b, 1, g*n, c]))
    %y = Reshape(%a) : [b, h, g*n, c]

All layers share the wider mask.
"""

from __future__ import annotations

from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape, is_static, known_size, known_sizes
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.reshape import reshape
from onnxtfl.rewriting.patterns import Patterns

ROWS_OF_SCORES = Patterns()


@ROWS_OF_SCORES.on(ops.Reshape)
def rows_of_scores(b: Builder, node: Node) -> Value | None:
    """Mask the rows of all heads as they are multiplied, in place of reshaping the scores before and after."""
    value, steps, shape = node.operand(0), list[tuple[Node, int]](), node.result.shape
    full = value.shape
    while single_use(value, b.graph) and (made := made_by(value)) is not None and made.op is not ops.Reshape:
        place = _of_rows(made)
        if place is None:
            return None
        steps.append((made, place))
        value = made.operand(place)
    before = made_by(value, ops.Reshape)
    if not steps or before is None or before.operand(0).shape != shape or not _are_rows(full, shape):
        return None
    others = [[v and _of_all_heads(b, v, full, shape) for i, v in enumerate(n.operands) if i != k] for n, k in steps]
    if any(o is None for (n, k), new in zip(steps, others, strict=True) for o in new):
        return None
    value = before.operand(0)
    for (made, place), new in zip(reversed(steps), reversed(others), strict=True):
        value = b.remade(made, *new[:place], value, *new[place:])[0]
    return value


def _of_rows(node: Node) -> int | None:
    """The operand of a node, from each row of which (along the last axis) that of the result is computed, with rows of
    others that broadcast; None for other nodes.
    """
    if node.op is ops.Softmax:
        return 0 if node.attr("axis") % node.result.rank == node.result.rank - 1 else None
    if not issubclass(node.op, Elementwise) or len(node.results) != 1:
        return None
    full = [i for i, v in enumerate(node.operands) if v is not None and v.shape == node.result.shape]
    return full[0] if len(full) == 1 and not node.operand(full[0]).is_constant else None


def _are_rows(full: Shape, shape: Shape) -> bool:
    """Whether `full` [b, h*g, n, c] has the rows of `shape` [b, h, g*n, c], g > 1."""
    if len(full) != 4 or len(shape) != 4 or not is_static((*full, *shape)) or full[::3] != shape[::3]:
        return False
    (heads, length), (groups, rows) = known_sizes(full[1:3]), known_sizes(shape[1:3])
    return 0 < groups < heads and heads % groups == 0 and rows == length * (heads // groups)


def _of_all_heads(b: Builder, value: Value, full: Shape, shape: Shape) -> Value | None:
    """An operand that broadcasts to `full` [b, h*g, n, c], for `shape` [b, h, g*n, c]; None if it would be as large."""
    own = (1,) * (4 - value.rank) + value.shape
    if not is_static(own):
        return None
    if own[1:3] == full[1:3]:
        return reshape(b, value, [own[0], *shape[1:3], own[3]])
    if own[1:3] == (1, 1):
        return value
    if own[1:3] != (1, full[2]) or shape[1] == 1:
        return None
    repeats = known_size(full[1]) // known_size(shape[1])
    wide = b(ops.BroadcastTo, reshape(b, value, [own[0], 1, 1, *own[2:]]), [own[0], 1, repeats, *own[2:]])
    return reshape(b, wide, [own[0], 1, shape[2], own[3]])
