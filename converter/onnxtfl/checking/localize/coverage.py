"""Conclusions from layers: whether all ops that compute the outputs agree, and which op differs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from onnxtfl.checking.localize.engine import Layer
from onnxtfl.tracing.matches import Match
from onnxtfl.tracing.trace import InnerModel

ROUNDING = 1e-5
"""The largest relative own error of an op from float32 rounding alone."""
SMALL, FACTOR = 1e-2, 30.0
"""An own error below `SMALL` is attributed to a kernel if another one is more than `FACTOR` times as large."""


@dataclass(frozen=True)
class Coverage:
    """The layers between the inputs and some outputs.

    `layers`: the tensors compared, of these ops, in order; `missing`: outputs that could not be compared.
    """

    layers: list[Layer]
    missing: list[int]

    @cached_property
    def wrong(self) -> list[Layer]:
        """Return the layers that differ or have no verdict."""
        return [layer for layer in self.layers if layer.fails or says_nothing(layer)]

    @property
    def agrees(self) -> bool:
        """Whether all ops between the inputs and the outputs agree."""
        return bool(self.layers) and not self.missing and not self.wrong

    @property
    def largest(self) -> float:
        """The largest error, relative to the largest value of its tensor."""
        return max((layer.own for layer in self.layers if layer.own is not None), default=0.0)


def says_nothing(layer: Layer) -> bool:
    """Whether a layer is no evidence: it could not be compared, or has no finite value."""
    return layer.check is None or not (layer.check.compared or layer.check.is_empty)


def coverage(layers: Sequence[Layer], outputs: Collection[int]) -> Coverage:
    """Return the layers between the inputs and `outputs` (indices in the second model).

    A layer covers the ops between its tensor and the tensors that it reads; each of these is an input or has a layer.
    """
    by_number = {layer.match.b: layer for layer in layers}
    needed, pending = set[int](), list(outputs)
    while pending:
        number = pending.pop()
        if number not in needed and number in by_number:
            needed.add(number)
            pending += [i for i in by_number[number].read if i in by_number]
    missing = [number for number in outputs if number not in by_number]
    return Coverage([layer for layer in layers if layer.match.b in needed], missing)


def needed_matches(b: InnerModel, matches: Sequence[Match], outputs: Collection[int]) -> list[Match]:
    """The matches of the `outputs`, and of tensors from which they are computed."""
    by_number = {match.b: match for match in matches}
    found, pending = set[int](), list(outputs)
    while pending:
        number = pending.pop()
        if number not in found and number in by_number:
            found.add(number)
            pending += b.between(number, by_number)[1]
    return [match for match in matches if match.b in found]


def first_failure(layers: Sequence[Layer]) -> Layer | None:
    """The first layer whose own error is beyond the tolerance. If there is none, the one with the largest error, if
    that is larger than rounding and much larger than the others.

    A small error is no failure if another layer has a much larger one. Nor is a mean error (some kernels have one) if
    another layer has wrong elements.
    """
    largest = max((layer.own or 0.0 for layer in layers), default=0.0)
    for layer in sorted(layers, key=lambda layer: layer.check is not None and layer.check.biased):  # stable
        if layer.fails and (layer.own is None or layer.own > SMALL or layer.own * FACTOR > largest):
            return layer
    known = sorted((layer for layer in layers if layer.own is not None), key=lambda layer: layer.own or 0.0)
    usual = known[len(known) // 2].own or 0.0 if known else 0.0
    return known[-1] if known and (known[-1].own or 0.0) > max(FACTOR * usual, ROUNDING) else None
