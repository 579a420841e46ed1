"""The errors of two models along their depth, and the first op whose result differs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerError:
    """A tensor that both models compute: `a` in the first, `b` in the second, whose op is `op`.

    `node`: as for :class:`FirstDifference`. ``error``: the largest ``|b - a|`` if each model reads its own values,
    relative to the largest ``|a|``; inf if shapes differ. ``own``: the same if the op reads the values of the first
    model, so that only its own error is left; None if it was not run on them.
    """

    a: str
    b: str
    node: str
    op: str
    error: float
    own: float | None = None


@dataclass(frozen=True)
class FirstDifference:
    """The first op of the second model whose result differs.

    ``a``, ``b``: the tensor in each model. ``op``: the op of the second model that computes `b`; ``node``: its name; if
    the format has no names of nodes, that of the node of the first model that computes `a` (the name of its first
    result if the node has none). ``error``: the error of the result if the op reads the values of the first model,
    relative to the largest value; ``error_in``: the largest error of its operands if each model reads its own values.
    ``node_a``, ``op_a``, ``node_b``, ``op_b``: the node and its op in each model. ``nodes``: all nodes of the first
    model that the op computes.
    """

    a: str
    b: str
    node: str
    op: str
    error: float
    error_in: float
    node_a: str = ""
    op_a: str = ""
    node_b: str = ""
    op_b: str = ""
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = f" (node {self.node!r})" if self.node != self.b else ""
        found = f"error {self.error:.2g} of the largest value, inputs differ by {self.error_in:.2g}"
        return f"first difference: {self.op} {self.b!r}{at}: {found}"
