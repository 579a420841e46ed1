"""Sequences and optionals while lifting: their elements, one tensor of all elements, and regions that return them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import Shape, is_static
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.reshape import stacked_along
from onnxtfl.ir.shown_sizes import shown_shape
from onnxtfl.ir.types import OptionalType, SequenceType, TensorType
from onnxtfl.rewriting.regions import is_sequence

MOST_ELEMENTS = 1024
"""Elements of the longest sequence whose elements are separate values."""
PRESENCE = "return a value and a bool instead of an optional, or cut the model (`inputs`, `outputs`)"
FIX = "fix the sizes that decide it (`input_shapes`), or make them initializers"


def elements_of(value: Value) -> list[Value] | None:
    """The elements of a sequence of known length; None if the length is known only at run time.

    Raises UnsupportedError if nothing is known of the sequence.
    """
    maker = value.producer
    if maker is not None and maker.op is ops.Tuple:
        return maker.present_operands
    if maker is not None and maker.op is ops.GetTupleElement:
        outer = elements_of(maker.operand(0))
        return None if outer is None else elements_of(outer[maker.attr("index")])
    if maker is not None and maker.op is ops.Unstack:
        return None
    if isinstance(value.type, TensorType):
        raise TypeError("an operand is a tensor, not a sequence")
    raise UnsupportedError(f"the elements of a value of type {value.type} are unknown", hint=FIX, code="E-OP-006")


def sequence_of(b: Builder, elements: Sequence[Value | None]) -> Value:
    """A sequence of these elements. Raises UnsupportedError for more than `MOST_ELEMENTS`."""
    if len(elements) > MOST_ELEMENTS:
        message = f"a sequence of more than {MOST_ELEMENTS} elements"
        raise UnsupportedError(message, code="E-OP-006")
    return b(ops.Tuple, *elements)


def is_absent(value: Value | None) -> bool:
    """Whether an optional has no value. UnsupportedError if that is dynamic."""
    if value is None or (value.producer is not None and value.producer.op is ops.Absent):
        return True
    if isinstance(value.type, OptionalType) and not is_sequence(value):
        raise UnsupportedError(
            "whether an optional has a value is known only at run time", hint=PRESENCE, code="E-OP-006"
        )
    return False


def is_list(value: Value | None) -> bool:
    """Whether `value` is a sequence or an optional, resolved or not."""
    return value is not None and (is_sequence(value) or isinstance(value.type, SequenceType | OptionalType))


def stacked(b: Builder, sequence: Value, like: Value | None = None) -> Value:
    """All elements of a sequence as one tensor, joined along a new axis 0. Raises UnsupportedError for other shapes.

    `like`: an element of the type that those of an empty sequence would have.
    """
    elements = elements_of(sequence)
    if elements is None:
        assert sequence.producer is not None
        return sequence.producer.operand(0)
    first = elements[0] if elements else like
    if first is None:
        raise UnsupportedError("the sequence is empty, so the type of its elements is unknown", code="E-OP-006")
    shape = one_shape(*elements, first.shape)
    if elements:
        return stacked_along(b, elements, 0)
    if not is_static(shape):
        raise UnsupportedError(
            "the sequence is empty, and the shape of its elements is known only at run time", code="E-OP-006"
        )
    return constant(np.zeros((0, *shape), first.dtype.numpy), first.dtype)


def one_shape(*elements: Value | Shape) -> Shape:
    """The shape that all elements have. Raises UnsupportedError if they differ, or may differ at run time."""
    shapes = list(dict.fromkeys(v.shape if isinstance(v, Value) else v for v in elements))
    if len(shapes) > 1:
        shown = " and ".join(map(shown_shape, shapes))
        raise UnsupportedError(
            f"elements of different shapes {shown} where one tensor has to hold them", hint=FIX, code="E-OP-006"
        )
    return shapes[0]


def select_by_if(b: Builder, predicate: Value, one: Value, other: Value) -> Value:
    """`one` where `predicate`, of one element, is true, else `other`; their shapes may differ."""
    branches = [Graph(), Graph()]
    for place, branch in enumerate(branches):
        branch.outputs = [[branch.add_input(value.type) for value in (one, other)][place]]
    return b(ops.If, predicate, one, other, then_branch=branches[0], else_branch=branches[1])


class Outputs:
    """The outputs of alternative regions as tensors: sequences are replaced by their elements, or one tensor of these.

    `count`: the number of tensors. `regrouped` makes the sequences again from the results of the node.
    """

    def __init__(self, regions: Sequence[Graph]) -> None:
        columns = zip(*(region.outputs for region in regions), strict=True)
        self._builders = [Builder(region) for region in regions]
        found: list[tuple[Value, ...]] = []
        self._makers = [self._flatten(column, found) for column in columns]
        for region, outputs in zip(regions, zip(*found, strict=True), strict=False):
            region.outputs = list(outputs)
        if not found:
            for region in regions:
                region.outputs = []

    def _flatten(self, column: tuple[Value, ...], found: list[tuple[Value, ...]]) -> _Maker | None:
        """Append the tensors of one output of each region to `found`; return a function that rebuilds the output."""
        if not any(map(is_sequence, column)):
            found.append(column)
            return None
        if len({is_absent(v) for v in column}) > 1:
            raise UnsupportedError(
                "whether an optional has a value is known only at run time", hint=PRESENCE, code="E-OP-006"
            )
        makers = [v.producer for v in column if v.producer is not None and is_sequence(v)]
        if len(makers) < len(column):
            raise UnsupportedError("a sequence in one region and a tensor in the other", code="E-OP-006")
        counts = {(maker.op, len(maker.operands)) for maker in makers}
        if len(counts) > 1:
            makers = self._unstacked(column)
        parts = zip(*(maker.operands for maker in makers), strict=True)
        inner = [self._flatten(tuple(v for v in part if v is not None), found) for part in parts]
        return _Maker(makers[0], inner)

    def _unstacked(self, column: tuple[Value, ...]) -> list[Node]:
        """Sequences of different lengths, each as one tensor."""
        known = [elements_of(v) for v in column]
        like = next((elements[0] for elements in known if elements), None)
        made = [stacked(b, v, like) for b, v in zip(self._builders, column, strict=True)]
        results = [b(ops.Unstack, v) for b, v in zip(self._builders, made, strict=True)]
        return [v.producer for v in results if v.producer is not None]

    def regrouped(self, b: Builder, results: Iterable[Value]) -> list[Value]:
        """The results of the node, with its sequences."""
        given = iter(results)
        return [_made(b, maker, given) for maker in self._makers]


class _Maker:
    """A node with a sequence as result, and the makers of its sequence operands (None: tensors)."""

    def __init__(self, node: Node, operands: Sequence[_Maker | None]) -> None:
        self.node, self.operands = node, operands


def _made(b: Builder, maker: _Maker | None, given: Iterator[Value]) -> Value:
    if maker is None:
        return next(given)
    return b(maker.node.op, *(_made(b, part, given) for part in maker.operands), **maker.node.attributes)
