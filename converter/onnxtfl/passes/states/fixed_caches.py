"""Caches of a fixed length, written in place at the position of the new tokens, for decoders whose caches grow.

A decoder with P tokens in its caches and N new ones concatenates both to P + N. Here caches have C places, of which
those before the position of the first new token are filled, and no tensor has a size that depends on P::

    (%past: [1, 2, P, 16], ...)                              (%past: [1, 2, C, 16], %input_pos: [N], ...)
    %all = Concatenate(%past, %new) {axis = 2}          ->   %all = DynamicUpdateSlice(%past, %new, [0, 0, %first, 0])
    %at = Range(P, P + N, 1)                            ->   %at = %first + [0, 1, .., N - 1]
    %keys = Range(0, P + N, 1)                          ->   %keys = [0, 1, .., C - 1]
    %y = Slice(%table, [P], [P + N], [1])               ->   %y = DynamicSlice(%table, [%first]) {slice_sizes = [N]}

So P as a number is the position of the first new token, and a tensor's axis of size P or P + N has C places. What a
place from the first new token plus N on holds has no meaning: the softmax over places gets a mask.

Fewer tokens than N are padded. Where P + N > C then, no row may be written past the end: the rows move back by
%shift = P - min(P, C - N), so that the graph computes at min(P, C - N), and the first %shift rows of each cache stay::

    %all = DynamicUpdateSlice(%past, Select(%is_new, %new, Gather(%past, %at) {axis = 2}), [0, 0, %first, 0])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from onnxtfl.dataclass import dataclass
from onnxtfl.errors import InvalidModelError, UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.assumptions import assume
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.dependencies import needed_values
from onnxtfl.ir.dims import Dim, Symbol, differ, evaluate, is_static, known_sizes, size_or, substitute, symbol, symbols
from onnxtfl.ir.graph import Graph, Node, Value, constant
from onnxtfl.ir.shapes import known_dims
from onnxtfl.ir.types import DType, TensorType
from onnxtfl.passes.states.bounded_sizes import decide_comparisons
from onnxtfl.passes.states.grown_masks import grown_masks
from onnxtfl.passes.states.tables import last_row
from onnxtfl.passes.states.unfilled_places import operands_without_unfilled, with_ends

_FAR = (1 << 31) - 1
TOKENS, EMBEDDINGS, POSITIONS, MASK = "tokens", "embeddings", "input_pos", "mask"
"""The names of the inputs besides the caches, as LiteRT-LM has them."""


@dataclass(frozen=True)
class FixedCaches:
    """What the inputs of a decoder are, by name, and the sizes that its caches get.

    ``names``: the new name of each cache, by that of its input and of its output. ``past``: the axis along which each
    cache grows, by the name of its input. ``filled``: the symbol of the number of tokens in them. ``places``: the
    places of a cache. ``new``: the number of new tokens. ``attention``: the mask of valid tokens, "" if there is none.
    ``positions``: the positions of the new tokens, "" if there are none; a position along each of several axes of an
    image ([3, 1, N]) is that in the text. ``others``: the new names of all other inputs,
    whose sizes are static. ``set_to``: the value of an input that becomes constant.
    """

    tokens: str
    names: Mapping[str, str]
    past: Mapping[str, int]
    filled: Symbol
    places: int
    new: int
    attention: str = ""
    positions: str = ""
    others: Mapping[str, str] = field(default_factory=dict)
    set_to: Mapping[str, bool] = field(default_factory=dict)

    def declare(self, graph: Graph) -> None:
        """Set the types of the inputs of a file's graph: one sequence, with `new` tokens after `filled` ones."""
        set_inputs(graph, self.set_to)
        filled = symbol(self.filled)
        shapes: dict[str, tuple[Dim, ...]] = dict.fromkeys((self.tokens, self.positions), (1, self.new))
        shapes[self.attention] = (1, filled + self.new)
        for value in graph.inputs:
            if isinstance(value.type, TensorType) and value.name in self.past:
                axis, batch = self.past[str(value.name)], _batch_axis(value, self.past[str(value.name)])
                sizes: dict[int, Dim] = {axis: filled, batch: 1}
                value.type = value.type.with_shape(tuple(sizes.get(k, dim) for k, dim in enumerate(value.shape)))
            elif isinstance(value.type, TensorType) and value.name in shapes:
                ids = shapes[value.name][-value.rank :]
                is_embedded = value.name == self.tokens and value.rank > 2
                new = (1, self.new, *value.shape[2:]) if is_embedded else (*value.shape[: value.rank - len(ids)], *ids)
                value.type = value.type.with_shape(new)

    def decide(self, graph: Graph) -> bool:
        """Decide what depends on whether all tokens fit into the caches of a neutral graph; return whether any did."""
        return decide_comparisons(graph, self.filled, self.places - self.new)

    def fix(self, graph: Graph) -> None:
        """Give the caches of a neutral graph their fixed length.

        The inputs become `tokens` (int32 [1, N]; or `embeddings`, float32 [1, N, size]), `input_pos` (int32 [N]),
        `mask` (float32 [1, 1, N, C], added to the scores of all attention to the caches), the caches, and the others.
        Raises UnsupportedError for an op whose result would depend on how many places are filled in another way than
        the ops of decoders do.
        """
        _Rewriting(graph, self).run()


def _batch_axis(cache: Value, axis: int) -> int:
    """The axis of sequences: the first one, or the first open one of a cache with keys and values ([2, batch, ...])."""
    is_open = [k != axis and not isinstance(dim, int) for k, dim in enumerate(cache.shape)]
    return is_open.index(True) if cache.rank > 4 and any(is_open) else 0


def set_inputs(graph: Graph, values: Mapping[str, bool]) -> None:
    """Replace inputs of a graph by constants."""
    for value in [v for v in graph.inputs if v.name in values]:
        graph.inputs.remove(value)
        value.replace_uses(constant(np.full([1] * value.rank, values[str(value.name)])))


class _Rewriting:
    """The new values of a graph's values."""

    def __init__(self, graph: Graph, caches: FixedCaches) -> None:
        self.graph, self.caches = graph, caches
        self.b = Builder(graph, maker="fix caches")
        self.filled = caches.filled
        self.sizes: dict[Symbol, int] = {}
        self.ends: dict[Dim, tuple[int, int]] = {}
        self.new: dict[Value, Value] = {}
        self.inputs: list[Value] = []

    def run(self) -> None:
        old, masks = list(self.graph.nodes), grown_masks(self.graph, self.filled, self.caches.new)
        self._make_inputs()
        for value, (before, after) in masks.items():
            self.new[value] = self._causal(before, after)
        for node in old:
            self._make(node)
        names = self.graph.output_names
        caches = {self.caches.names[name] for name in self.caches.past}
        self.graph.outputs = [
            self._of(value) if self.caches.names.get(name) in caches else self._moved_forward(self._of(value))
            for name, value in zip(names, self.graph.outputs, strict=True)
        ]
        others = self.caches.others.values()
        self.graph.inputs = [v for v in self.inputs if v.uses or v.name not in others]
        for node in reversed(old):
            self.graph.remove(node)
        self.graph.output_names = [self.caches.names.get(name, name) for name in names]

    def _make_inputs(self) -> None:
        c, named = self.caches, {v.name: v for v in self.graph.inputs}
        ids, old = (1, c.new), named[c.tokens]
        embedded = old.rank > len(ids)
        shape = (*ids, *self._static_shape(old)[2:]) if embedded else ids
        dtype = DType.FLOAT32 if embedded else DType.INT32
        tokens = self._input(EMBEDDINGS if embedded else TOKENS, dtype, shape)
        self.at = self._input(POSITIONS, DType.INT32, (c.new,))
        self.mask = self._input(MASK, DType.FLOAT32, (1, 1, c.new, c.places))
        self.first = self.b(ops.Slice, self.at, [0], [1], [1])
        if c.new > 1:
            tokens = self._move_back(tokens)
        self.new[old] = self.b(ops.Convert, tokens, dtype=old.dtype)
        if c.positions:
            positions = named[c.positions]
            if positions.rank > 2:
                assume(f"the positions of a token along all axes of {c.positions!r} are its place: it is of a text")
            row = self.b(ops.Reshape, self.at, [*[1] * (positions.rank - 1), c.new])
            self.new[positions] = self._like(self.b(ops.BroadcastTo, row, list(positions.shape)), positions)
        if c.attention:
            self.new[named[c.attention]] = self._like(self._filled_places(), named[c.attention])
        written = {c.names.get(name): v for name, v in zip(self.graph.output_names, self.graph.outputs, strict=True)}
        for name in c.past:
            value, present = named[name], written[c.names[name]]
            pairs = zip(value.shape, present.shape, strict=True)
            self.sizes |= {s: size for dim, size in pairs if isinstance(size, int) for s in symbols(dim)}
            self.new[value] = self._input(c.names[name], value.dtype, self._static_shape(present))
        for name in (name for name in c.others if name in named):
            self.new[named[name]] = self._input(c.others[name], named[name].dtype, self._static_shape(named[name]))

    def _move_back(self, tokens: Value) -> Value:
        """Let all rows end within the caches: set the moved positions and masks, and return the moved tokens."""
        new, rows = self.caches.new, np.arange(self.caches.new, dtype=np.int32)
        first = self.b(ops.Min, self.first, np.asarray([self.caches.places - new], np.int32))
        self.shift = self.b(ops.Sub, self.first, first)
        self.first, self.at = first, self.b(ops.Add, first, rows)
        self.is_new = self.b(ops.Compare, constant(rows), self.shift, comparison_direction="GE")
        source = self.b(ops.Max, self.b(ops.Sub, constant(rows), self.shift), np.asarray([0], np.int32))
        self.mask = self.b(ops.Gather, self.mask, source, axis=2)
        return self.b(ops.Gather, tokens, source, axis=1)

    def _moved_forward(self, value: Value) -> Value:
        """The rows [1, N, ...] of an output in the order of the tokens that were given."""
        new = self.caches.new
        if new == 1 or value.rank < 2 or value.shape[1] != new:
            return value
        rows = self.b(ops.Add, constant(np.arange(new, dtype=np.int32)), self.shift)
        return self.b(ops.Gather, value, self.b(ops.Min, rows, np.asarray([new - 1], np.int32)), axis=1)

    def _causal(self, before: Array, after: Array) -> Value:
        """A mask [.., N, C]: one element for places up to that of the row's token, and another for those after it."""
        places = constant(np.arange(self.caches.places, dtype=np.int32).reshape(1, -1))
        at = self.b(ops.Reshape, self.at, [self.caches.new, 1])
        is_before = self.b(ops.Compare, places, at, comparison_direction="LE")
        return self.b(ops.Select, is_before, constant(before), constant(after))

    def _input(self, name: str, dtype: DType, shape: tuple[int, ...]) -> Value:
        value = Value(TensorType(dtype, shape), name)
        self.inputs.append(value)
        return value

    def _like(self, value: Value, other: Value) -> Value:
        return self.b(ops.Convert, value, dtype=other.dtype)

    def _filled_places(self) -> Value:
        """Which places hold tokens, the new ones included."""
        end = self.b(ops.Add, self.first, np.asarray([self.caches.new], np.int32))
        places = constant(np.arange(self.caches.places, dtype=np.int32).reshape(1, -1))
        return self.b(ops.Compare, places, end, comparison_direction="LT")

    def _is_filled(self, dim: Dim) -> Value:
        """Which places along an axis of this size hold tokens, or other elements than those of a cache."""
        return with_ends(self.b, self._filled_places(), self.ends.get(dim, (0, 0)), True)

    def _has_places(self, dim: Dim) -> bool:
        """Whether an axis of this size has the places of a cache, since it depends on how many are filled."""
        return not isinstance(dim, int) and self.filled in symbols(dim)

    def _size(self, dim: Dim) -> Dim:
        """The size of an axis: that of a cache for filled places, with or without the new tokens, and with elements
        that were concatenated to these. Sizes that are computed at run time remain.
        """
        dim = dim if isinstance(dim, int) else substitute(dim, self.sizes)
        if not self._has_places(dim):
            return dim
        if set(symbols(dim)) == {self.filled} and _slope(dim, self.filled) == 1:
            if evaluate(dim, {self.filled: 0}) in (0, self.caches.new):
                return self.caches.places
            if dim in self.ends:
                return self.caches.places + sum(self.ends[dim])
        raise UnsupportedError(f"an axis of size {dim} in a decoder with caches of a fixed length", code="E-OP-008")

    def _shape(self, value: Value) -> tuple[Dim, ...]:
        return tuple(map(self._size, value.shape))

    def _static_shape(self, value: Value) -> tuple[int, ...]:
        """The sizes of an input or output."""
        shape = self._shape(value)
        if not is_static(shape):
            raise UnsupportedError(f"a shape {list(shape)}, which is not known", node=value.name, code="E-OP-008")
        return tuple(map(int, shape))

    def _of(self, value: Value) -> Value:
        """The new value of an old one."""
        if value.is_constant:
            return value
        found = self.new.get(value)
        if found is None:
            known = self._known(value)
            if known is None:
                raise UnsupportedError("a value that is known at run time only", node=value.name, code="E-OP-008")
            found = self.new[value] = self._numbers(known, value)
        return found

    def _known(self, value: Value) -> list[Dim] | None:
        """The elements of a tensor that depend on nothing but how many places are filled; None for others."""
        known = known_dims(value)
        return known if known is not None and {s for dim in known for s in symbols(dim)} <= {self.filled} else None

    def _numbers(self, known: Sequence[Dim], like: Value) -> Value:
        """A tensor whose elements depend on how many places are filled."""
        starts = np.asarray([evaluate(dim, {self.filled: 0}) for dim in known], like.dtype.numpy)
        slopes = np.asarray([_slope(dim, self.filled) for dim in known], np.int32)
        if not slopes.any():
            return constant(starts.reshape(like.shape))
        moved = self.first if (slopes == 1).all() else self.b(ops.Mul, self.first, slopes)
        return self.b(ops.Reshape, self.b(ops.Add, self._like(moved, like), starts), [int(n) for n in like.shape])

    def _make(self, node: Node) -> None:
        if all(self._known(result) is not None for result in node.results):
            return
        if node.regions and self._counts_tokens(node):
            message = "a loop or branch that depends on how many tokens are in the caches"
            raise _refusal(node, message, "a smaller `context`, for which one branch is always taken")
        self.b.cause = node
        for old, new in zip(node.results, self._made(node), strict=True):
            shape = self._shape(old)
            if any(differ(*pair) for pair in zip(shape, new.shape, strict=True)):
                raise _refusal(node, f"a result of shape {list(new.shape)} where {list(shape)} was expected")
            new.name, old.name = new.name or old.name, None
            new.origins = new.origins or old.origins
            self.new[old] = new

    def _counts_tokens(self, node: Node) -> bool:
        """Whether a size in a node or in its regions, or a number that it reads, depends on how many places are filled.

        The last tokens of a prompt are padded, so such a number says how many there are at most.
        """
        inner = [n for region in node.regions for n in region.walk()]
        values = [v for n in (node, *inner) for v in (*n.operands, *n.results) if v is not None]
        values += [v for n in _computed_from_numbers(node.operands) for v in n.present_operands]
        known = [dim for v in values for dim in (*(v.tensor_type.shape or ()), *(known_dims(v) or ()))]
        return any(map(self._has_places, known))

    def _made(self, node: Node) -> list[Value]:
        """The new results of a node."""
        rule = _RULES.get(node.op)
        made = rule(self, node) if rule is not None else None
        if made is not None:
            return made
        new = [None if v is None else self._of(v) for v in node.operands]
        operands = operands_without_unfilled(node, new, self.b, self._has_places, self._is_filled)
        if operands is None:
            raise _refusal(node, f"the places of caches, combined in {node.operand(0).type}")
        try:
            return self.b.remade(node, *operands)
        except InvalidModelError as error:  # the decoder takes several tokens while its caches are empty, else one
            hint = "`prefill` of 1" if self.caches.new > 1 else None
            raise _refusal(node, f"{self.caches.new} new tokens after others: {error.message}", hint) from error

    def _concatenate(self, node: Node) -> list[Value] | None:
        """New tokens after those in a cache are written into it; other elements are before or after all places."""
        axis = node.attr("axis") % node.result.rank
        sizes = [v.shape[axis] for v in node.present_operands]
        if len(sizes) != 2 or not _is_symbol(sizes[0], self.filled) or sizes[1] != self.caches.new:
            self._note_ends(node, sizes, node.result.shape[axis])
            return None
        cache, new = (self._of(v) for v in node.present_operands)
        starts = self._starts(cache.rank, axis)
        if self.caches.new > 1:
            old = self.b(ops.Gather, cache, self.at, axis=axis)
            shape = [self.caches.new if k == axis else 1 for k in range(cache.rank)]
            new = self.b(ops.Select, self.b(ops.Reshape, self.is_new, shape), new, old)
        return [self.b(ops.DynamicUpdateSlice, cache, new, starts)]

    def _note_ends(self, node: Node, sizes: Sequence[Dim], total: Dim) -> None:
        """Note how many elements are before and after the places in an axis of this size."""
        at = [k for k, size in enumerate(sizes) if self._has_places(size)]
        if len(at) != 1 or not is_static([*sizes[: at[0]], *sizes[at[0] + 1 :]]):
            return
        before, after = (sum(known_sizes(part)) for part in (sizes[: at[0]], sizes[at[0] + 1 :]))
        inner = self.ends.get(sizes[at[0]], (0, 0))
        if evaluate(sizes[at[0]], {self.filled: 0}) != self.caches.new + sum(inner):
            raise _refusal(node, "elements between the tokens in a cache and the new ones")
        ends = (before + inner[0], after + inner[1])
        if ends != (0, 0) and self.ends.setdefault(total, ends) != ends:
            raise _refusal(
                node, f"{ends[0]} elements before the places of a cache, and {self.ends[total][0]} elsewhere"
            )

    def _starts(self, rank: int, axis: int) -> Value:
        """The position of the first new token along an axis, 0 along others."""
        return self.b(ops.Mul, self.first, np.eye(rank, dtype=np.int32)[axis])

    def _range(self, node: Node) -> list[Value] | None:
        start, _, delta = (self._of(v) for v in node.present_operands)
        size = self._shape(node.result)[0]
        if not isinstance(size, int):
            return None
        count = constant(np.arange(size), node.result.dtype)
        return [self.b(ops.Add, self.b(ops.Mul, count, delta), start)]

    def _sized(self, node: Node) -> list[Value] | None:
        """Reshape, BroadcastTo: the shape is that of the result, as far as it is known."""
        shape = self._shape(node.result)
        if is_static(shape):
            return self.b.remade(node, self._of(node.operand(0)), list(shape))
        if any(map(self._has_places, node.result.shape)):
            raise _refusal(node, f"a shape {list(node.result.shape)} of places of a cache and of unknown sizes")
        return None

    def _sizes_of(self, node: Node) -> list[Value] | None:
        """Sizes of a tensor of which some are computed at run time; a number of places is that of filled ones."""
        axes = node.attributes.get("axes")
        x = node.operand(0)
        read = [x.shape[axis] for axis in (range(x.rank) if axes is None else axes)]
        if not any(map(self._has_places, read)):
            return None
        (sizes,), like = self.b.remade(node, self._of(x)), constant(np.zeros(1), node.result.dtype)
        parts = [
            self._numbers([dim], like) if self._has_places(dim) else self.b(ops.Slice, sizes, [k], [k + 1], [1])
            for k, dim in enumerate(read)
        ]
        return [self.b(ops.Concatenate, *parts, axis=0)]

    def _wrapped(self, node: Node) -> list[Value] | None:
        """Indices that wrap around at the ends of axes."""
        sizes = known_dims(node.operand(1))
        if sizes is None or not any(map(self._has_places, sizes)):
            return None
        divisor = np.asarray([self._size(dim) for dim in sizes], node.result.dtype.numpy)
        return self.b.remade(node, self._of(node.operand(0)), divisor.reshape(node.operand(1).shape))

    def _looked_up(self, node: Node) -> list[Value] | None:
        """Refuse a table of positions that has fewer than the caches."""
        table, indices = node.operand(0), self._of(node.operand(1))
        rows = table.shape[node.attr("axis")] if table.is_constant and table.rank else self.caches.places
        if not isinstance(rows, int) or rows >= self.caches.places:
            return None
        if {v.name for v in needed_values([indices]) if v in self.inputs} != {POSITIONS}:
            return None
        positions = next(v for v in self.inputs if v.name == POSITIONS)
        last = np.arange(self.caches.places - self.caches.new, self.caches.places, dtype=np.int32)
        if last_row(self.graph, indices, positions, last, rows) >= rows:
            message = f"caches of {self.caches.places} places, but a table of {rows} positions"
            raise _refusal(node, message, f"`context` of at most {rows}")
        return None

    def _slice(self, node: Node) -> list[Value] | None:
        x, starts, _, strides = node.present_operands
        steps, begins = known_dims(strides), known_dims(starts)
        if steps is None or begins is None or not self._varies(node):
            return None
        places = zip(x.shape, node.result.shape, begins, steps, strict=True)
        found = [self._part(*place) for place in places]
        at = self._of(x)
        if is_static(firsts := [begin for begin, _ in found]) and is_static(steps):
            numbers = [size_or(n, _FAR) for _, n in found]  # a whole axis of unknown size
            ends = [min(first + n * step, _FAR) for first, n, step in zip(firsts, numbers, steps, strict=True)]
            return [self.b(ops.Slice, at, firsts, ends, steps)]
        counts = [n for _, n in found]
        if any(step != 1 for step in steps) or not is_static(counts):
            raise _refusal(node, f"a part {node.result.type} of {x.type} at a place that depends on the tokens before")
        sizes, begins = known_sizes(counts), [b for b, _ in found]
        at = self._long_enough(node, at, begins, sizes)
        begin = self._numbers(begins, constant(np.zeros(len(found), np.int64)))
        return [self.b(ops.DynamicSlice, at, begin, slice_sizes=sizes)]

    def _long_enough(self, node: Node, x: Value, begins: Sequence[Dim], counts: Sequence[int]) -> Value:
        """`x`, padded where a part for all places would end after it, since the kernel moves such a part.

        What follows the filled places has no meaning. A part for new tokens that ends after a table is refused.
        """
        padding = np.zeros((x.rank, 2), np.int64)
        for axis, (begin, count) in enumerate(zip(begins, counts, strict=True)):
            if isinstance(begin, int):
                continue
            ends = [evaluate(begin, {self.filled: n}) + count for n in (0, self.caches.places - self.caches.new)]
            missing = max(ends) - int(x.shape[axis])
            if missing > 0 and not self._has_places(node.result.shape[axis]):
                message = f"caches of {self.caches.places} places, but a table of {x.shape[axis]} positions"
                raise _refusal(node, message, f"`context` of at most {max(1, self.caches.places - missing)}")
            padding[axis, 1] = max(missing, 0)
        return self.b(ops.Pad, x, padding) if padding.any() else x

    def _varies(self, node: Node) -> bool:
        dims = [*node.operand(0).shape, *node.result.shape]
        known = [dim for v in node.operands[1:] if v is not None for dim in known_dims(v) or ()]
        return any(map(self._has_places, [*dims, *known]))

    def _part(self, size: Dim, made: Dim, begin: Dim, step: Dim) -> tuple[Dim, Dim]:
        """The first place and the number of places of a slice along one axis."""
        if size == made:
            return 0, self._size(made)
        if isinstance(begin, int) and begin < 0:
            begin = size + begin
        ends = self.ends.get(size)
        if ends is not None and self._has_places(begin):
            after = size - begin  # elements from there to the end, which are after the places
            if not isinstance(after, int) or after > ends[1]:
                raise UnsupportedError(f"a part from {begin} of an axis of size {size}", code="E-OP-008")
            begin = self.caches.places + sum(ends) - after
        return begin, self._size(made)

    def _softmax(self, node: Node) -> list[Value] | None:
        """Places after the new tokens get no weight."""
        axis = node.attr("axis") % node.result.rank
        if not self._has_places(size := node.result.shape[axis]):
            return None
        scores = self._of(node.operand(0))
        if axis != scores.rank - 1 or scores.shape[-2] != self.caches.new:
            raise _refusal(node, f"a softmax over the places of a cache along axis {axis} of {node.operand(0).type}")
        shape = [1] * (scores.rank - 2) + [self.caches.new, self.caches.places]
        mask = self._like(self.b(ops.Reshape, self.mask, shape), scores)
        mask = with_ends(self.b, mask, self.ends.get(size, (0, 0)), 0)
        return self.b.remade(node, self._masked(scores, mask))

    def _masked(self, scores: Value, mask: Value) -> Value:
        """The sum of scores and masks; where a smaller mask is added already, to that one."""
        node = scores.producer
        if node is not None and node.op is ops.Add:
            small = [v for v in node.present_operands if _elements(v) < _elements(scores)]
            if len(small) == 1 and _elements(small[0]) >= _elements(mask):
                (other,) = (v for v in node.present_operands if v is not small[0])
                return self.b(ops.Add, other, self.b(ops.Add, small[0], mask))
        return self.b(ops.Add, scores, mask)


def _refusal(node: Node, message: str, hint: str | None = None) -> UnsupportedError:
    return UnsupportedError(message, node=node.name, op=node.op.name, hint=hint, code="E-OP-008")


def _computed_from_numbers(values: Sequence[Value | None]) -> Iterator[Node]:
    """The nodes on which scalars depend, back to known values and to tensors."""
    work, seen = list(values), set[Node]()
    while work:
        value = work.pop()
        node = None if value is None or value.is_constant or value.rank else value.producer
        if node is not None and node not in seen and all(v is None or not v.rank for v in node.operands):
            seen.add(node)
            work.extend(node.operands)
            yield node


def _elements(value: Value) -> int:
    return int(np.prod(value.shape))


def _slope(dim: Dim, symbol: Symbol) -> int:
    """The factor of a symbol in a linear expression; UnsupportedError for others."""
    first, second, third = (evaluate(dim, {symbol: n}) for n in (0, 1, 1 << 20))
    if third - first != (second - first) << 20:
        raise UnsupportedError(f"a size {dim} that is no sum", code="E-OP-008")
    return second - first


def _is_symbol(dim: Dim, symbol: Symbol) -> bool:
    return not isinstance(dim, int) and set(symbols(dim)) == {symbol} and evaluate(dim, {symbol: 5}) == 5


_RULES: dict[Any, Callable[[_Rewriting, Node], list[Value] | None]] = {
    ops.Concatenate: _Rewriting._concatenate,
    ops.Range: _Rewriting._range,
    ops.Reshape: _Rewriting._sized,
    ops.Shape: _Rewriting._sizes_of,
    ops.BroadcastTo: _Rewriting._sized,
    ops.Slice: _Rewriting._slice,
    ops.Softmax: _Rewriting._softmax,
    ops.FloorMod: _Rewriting._wrapped,
    ops.Gather: _Rewriting._looked_up,
}
