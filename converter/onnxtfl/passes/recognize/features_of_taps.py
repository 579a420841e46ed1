"""Sums of shifted features of one convolution, which are a convolution with more taps (`canonical.taps_as_features`).

::

    %t = Conv(%x, %k), 1 tap along an axis, to 9 features
    Add(Add(%t[:, 3:6], Pad(%t[:-1, 0:3], a row before)), Pad(%t[1:, 6:9], a row after))
      ->
    Conv(%x, %m), 3 taps along the axis, to 3 features
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.matching import made_by, single_use
from onnxtfl.ir.op import attributes_of
from onnxtfl.ir.ops.convolution import conv_window, renumbered, spatial_sizes, window_attributes
from onnxtfl.ir.spatial import Window
from onnxtfl.passes.recognize.convolution_parts import part_of, zeros_before
from onnxtfl.rewriting.patterns import Patterns

FEATURES_OF_TAPS = Patterns()


@dataclass(frozen=True, eq=False)
class Term:
    """A part of the result of a convolution: its features, and where it is in the sum along the spatial axes.

    `source`: the whole result, perhaps with permuted axes; `attributes`: those of the convolution that makes it so.
    """

    convolution: Node
    source: Value
    attributes: Mapping[str, Any]
    features: range
    read: tuple[range, ...]
    before: tuple[int, ...]

    @classmethod
    def of(cls, value: Value, graph: Graph) -> Term | None:
        """The term `value`; None if it is no part of a convolution's result, or more than one node reads it."""
        pad = made_by(value, ops.Pad)
        inner = value if pad is None else pad.operand(0)
        if not single_use(value, graph) or not inner.is_static:
            return None
        source, read = part_of(inner)
        turn = made_by(source, ops.Transpose)
        made = source if turn is None else turn.operand(0)
        node = made_by(made, ops.Conv)
        if node is None or not node.operand(1).is_constant or not node.operand(0).is_static:
            return None
        attributes = attributes_of(node)
        if turn is not None:
            if not single_use(made, graph):
                return None
            attributes = {**attributes, **renumbered(attributes, "output", turn.attr("permutation"))}
        spatial = attributes["output_spatial_dimensions"]
        before = zeros_before(pad, spatial)
        if before is None or attributes["feature_group_count"] != 1:
            return None
        features = read[attributes["output_feature_dimension"]]
        return cls(node, source, attributes, features, tuple(read[axis] for axis in spatial), tuple(before))


@FEATURES_OF_TAPS.on(ops.Add)
def taps_of_features(b: Builder, node: Node) -> Value | None:
    """The convolution with as many taps as there are terms, if these are all that is read of its result."""
    terms = _terms(node, b.graph)
    if not terms or any(term.source is not terms[0].source for term in terms):
        return None
    convolution, attributes = terms[0].convolution, terms[0].attributes
    terms.sort(key=lambda term: term.features.start)
    total, each = convolution.operand(1).shape[attributes["kernel_output_feature_dimension"]], terms[0].features
    found = [term.features for term in terms]
    if len(terms[0].source.uses) != len(terms) or b.graph.is_output(terms[0].source):
        return None
    if found != [range(start, start + len(each)) for start in range(0, total, len(each))]:
        return None
    window, bias = _window(node, terms), _bias(node, terms)
    if window is None or bias is None:
        return None
    axis = next(i for i, size in enumerate(window.shape) if size != _given(convolution).shape[i])
    kernel = _kernel(convolution, axis, len(terms))
    return b(ops.Conv, convolution.operand(0), kernel, bias, **{**attributes, **window_attributes(window)})


def _terms(node: Node, graph: Graph) -> list[Term]:
    """The terms of a sum of any number; empty if one of them is no part of a convolution."""
    found, work = list[Term](), list(node.operands)
    while work:
        value = work.pop()
        inner = made_by(value, ops.Add)
        if inner is not None and value is not None and single_use(value, graph):
            work += inner.operands
        elif value is None or value.shape != node.result.shape or (term := Term.of(value, graph)) is None:
            return []
        else:
            found.append(term)
    return found


def _given(convolution: Node) -> Window:
    attributes, kernel = attributes_of(convolution), convolution.operand(1)
    window = conv_window(attributes, kernel.shape)
    return window.explicit(spatial_sizes(attributes, "input", convolution.operand(0).shape))


def _window(node: Node, terms: Sequence[Term]) -> Window | None:
    """The window whose taps along one axis are the terms; None if they do not read what such taps do."""
    window, attributes = _given(terms[0].convolution), terms[0].attributes
    sizes = spatial_sizes(attributes, "output", terms[0].source.shape)
    counts = spatial_sizes(attributes, "output", node.result.shape)
    shifts = [[r.start - n for r, n in zip(term.read, term.before, strict=True)] for term in terms]
    places = [axis for axis in range(window.rank) if len({shift[axis] for shift in shifts}) > 1]
    if len(places) != 1:
        return None
    (axis,) = places
    offsets, taps = [shift[axis] for shift in shifts], len(terms)
    step, is_single = offsets[1] - offsets[0], window.along([axis]) == Window.of((1,), (1,), (1,), (0, 0))
    if not is_single or step < 1 or offsets != list(range(offsets[0], offsets[0] + taps * step, step)):
        return None
    if not all(_reads_all(term, sizes, counts) for term in terms):
        return None
    before, after = -offsets[0], counts[axis] - sizes[axis] + offsets[-1]
    if min(before, after) < 0:
        return None
    shape, dilations, padding = list(window.shape), list(window.dilations), list(window.explicit_padding)
    shape[axis], dilations[axis] = taps, step
    padding[axis], padding[window.rank + axis] = before, after
    return Window.of(shape, window.strides, dilations, padding)


def _reads_all(term: Term, sizes: Sequence[int], counts: Sequence[int]) -> bool:
    """Whether a term has all elements that its tap reads, and zeros only at positions that read padding."""
    for read, before, size, count in zip(term.read, term.before, sizes, counts, strict=True):
        shift = read.start - before
        first, last = max(0, -shift), min(count, size - shift)
        if (before, before + len(read)) != (first, last):
            return False
    return True


def _bias(node: Node, terms: Sequence[Term]) -> Value | None:
    """The sum of the biases of the terms; None if one is added at some positions only."""
    convolution, size = terms[0].convolution, len(terms[0].features)
    given = convolution.optional(2)
    if given is not None and not given.is_constant:
        return None
    numbers = np.zeros(size * len(terms), np.float32) if given is None else given.numpy()
    counts = spatial_sizes(terms[0].attributes, "output", node.result.shape)
    for term in terms:
        own, is_everywhere = numbers[term.features.start : term.features.stop], [*map(len, term.read)] == [*counts]
        if own.any() and not is_everywhere:
            return None
    return constant(numbers.reshape(len(terms), size).sum(0, dtype=numbers.dtype))


def _kernel(convolution: Node, axis: int, taps: int) -> Value:
    """The kernel with the features of each tap along `axis`."""
    attributes, data = attributes_of(convolution), convolution.operand(1).data
    assert data is not None
    along, to = attributes["kernel_spatial_dimensions"][axis], attributes["kernel_output_feature_dimension"]
    shape = list(data.shape)
    split = [*shape[:to], taps, shape[to] // taps, *shape[to + 1 :]]  # the taps are an axis before the features
    place = along + (along > to)
    order = [i for i in range(len(split)) if i != to]
    order.insert(order.index(place), to)
    shape[to], shape[along] = shape[to] // taps, taps
    return constant(data.reshape(split).transpose(order).reshape(shape))
