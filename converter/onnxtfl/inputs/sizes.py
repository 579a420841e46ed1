"""Sizes for dynamic dimensions with which no inner tensor is empty and all shapes fit.

Constraints on sizes are read once (`shape_facts`); `open_shapes` yields the shapes to try, the best first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Literal

from onnxtfl.errors import UsageError, suggestion
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.ir import dims, ops
from onnxtfl.ir.dims import SymDim, differ, is_static, size_or
from onnxtfl.ir.graph import Graph, Node, Value
from onnxtfl.ir.op import Elementwise
from onnxtfl.ir.ops.contraction import DotRoles

Shapes = list[tuple[int, ...]]
Pair = tuple[dims.Dim, dims.Dim]
Kind = Literal["batch", "channels", "image", "volume", "ids", "features", "signal"]

SIZES: Mapping[Kind, tuple[int, ...]] = {
    "batch": (2,),
    "channels": (3,),
    "image": (64, 160, 224, 320, 96, 48, 640, 32),
    "volume": (32, 64, 16, 96, 128),
    "ids": (32, 128, 8, 512, 16),
    "features": (128, 320, 64, 16, 1000),
    "signal": (480, 1024, 1600, 8000, 16000, 64),
}
"""Sizes that people use, by kind of dimension, in the order in which they are tried, with a batch of 2 and of 1."""
_MOST_ELEMENTS = 1 << 26
"""The most elements of all inputs for chosen sizes, which limits tensors with many dynamic axes."""
PRECISE = sorted(range(1, 2049), key=lambda size: (-math.gcd(size, 32), size))
"""Sizes that are tried if none of these fits the graph: multiples of 32 first."""
BATCH_NAME = r"batch|^bs$"
LENGTH_NAME = r"seq|token|len|time|frame|sample|audio|wave"
"""Words in the names of dimensions."""


@dataclass(frozen=True)
class ShapeFacts:
    """``inputs``: the shapes of the inputs by name. ``inner``: sizes of tensors inside, which should be positive.
    ``equal``: pairs of sizes that have to be equal; ``broadcast``: those of which one may be 1 instead.
    """

    inputs: Mapping[str, dims.Shape] = field(default_factory=dict)
    inner: frozenset[SymDim] = frozenset()
    equal: frozenset[Pair] = frozenset()
    broadcast: frozenset[Pair] = frozenset()


def shape_facts(graph: Graph) -> ShapeFacts:
    """Return the constraints on input sizes from the shapes in a neutral graph."""
    inputs = {value.name or "": shape for value in graph.inputs if (shape := _shape(value)) is not None}
    inner = set[SymDim]()
    pairs: dict[bool, set[Pair]] = {True: set(), False: set()}
    for node in graph.nodes if any(not dims.is_static(shape) for shape in inputs.values()) else ():
        inner.update(d for result in node.results for d in _shape(result) or () if isinstance(d, SymDim))
        broadcasts = issubclass(node.op, Elementwise)
        pairs[broadcasts].update(pair for pair in _equal(node) if pair[0] != pair[1])
    known = {s for shape in inputs.values() for d in shape for s in dims.symbols(d)}
    equal, broadcast = (
        frozenset(pair for pair in pairs[key] if all(known.issuperset(dims.symbols(d)) for d in pair))
        for key in (False, True)
    )
    broadcast = frozenset(pair for pair in broadcast if 1 not in pair)
    return ShapeFacts(inputs, frozenset(d for d in inner if known.issuperset(dims.symbols(d))), equal, broadcast)


def _shape(value: Value | None) -> dims.Shape | None:
    return getattr(None if value is None else value.type, "shape", None)


def _equal(node: Node) -> Iterator[Pair]:
    """The sizes of the operands of a node that have to be equal."""
    shapes = [_shape(v) for v in node.operands]
    known = [s for s in shapes if s is not None]
    if len(known) < 2:
        return
    if issubclass(node.op, Elementwise):
        for other in known[1:]:
            yield from zip(reversed(known[0]), reversed(other), strict=False)
    elif node.op is ops.Concatenate:
        axis = node.attr("axis") % max(1, len(known[0]))
        for other in known[1:]:
            yield from (pair for k, pair in enumerate(zip(known[0], other, strict=False)) if k != axis)
    elif issubclass(node.op, ops.DotGeneral) and shapes[0] is not None and shapes[1] is not None:
        roles = DotRoles.of(node)
        yield from ((shapes[0][i], shapes[1][j]) for i, j in zip(roles.lhs_contract, roles.rhs_contract, strict=True))
    elif node.op is ops.Conv and shapes[0] is not None and shapes[1] is not None:
        channels = shapes[1][node.attr("kernel_input_feature_dimension")] * node.attr("feature_group_count")
        yield shapes[0][node.attr("input_feature_dimension")], channels


def full_lengths(infos: Sequence[TensorInfo], shapes: Shapes) -> dict[str, int]:
    """Return full lengths for inputs that are sequence lengths of other inputs, by name.

    Such an input is an integer vector with one entry per batch element and "len" in its name.
    """
    found: dict[str, int] = {}
    for info, shape in zip(infos, shapes, strict=True):
        if len(shape) == 1 and info.dtype in ("int32", "int64") and re.search(r"len", info.name.lower()):
            of = [s for other, s in zip(infos, shapes, strict=True) if other is not info and len(s) > 1]
            steps = next((s[1] for s in of if s[0] == shape[0]), None)
            found |= {} if steps is None else {info.name: steps}
    return found


def unit_shapes(infos: Sequence[TensorInfo], shapes: Shapes, given: Collection[str]) -> Iterator[tuple[bool, Shapes]]:
    """Yield `shapes` with dynamic batches of 1, then with all dynamic sizes 1, and whether only the batch is 1.

    Inputs that are `given` keep their sizes.
    """
    before = shapes
    for only_batch in (True, False):
        units = [
            shape
            if info.name in given
            else tuple(
                size if isinstance(dim, int) or (only_batch and _kind(info, axis) != "batch") else 1
                for axis, (dim, size) in enumerate(zip(info.shape or shape, shape, strict=True))
            )
            for info, shape in zip(infos, shapes, strict=True)
        ]
        if units != before:
            yield only_batch, units
        before = units


def requested(
    infos: Sequence[TensorInfo], shapes: Mapping[str, Sequence[int | str]], others: Mapping[str, str]
) -> list[TensorInfo]:
    """Return ``infos`` with the requested sizes ``shapes`` by name (-1 and names are dynamic), also for other inputs
    with the same symbol.

    ``others``: the name in ``infos`` of each input of the other model. UsageError for unknown names and other ranks.
    """
    wanted, symbols = dict[str, Sequence[int | str]](), dict[str, int]()
    known = {info.name: info for info in infos}
    for given, shape in shapes.items():
        name = given if given in known else others.get(given, "")
        if name not in known:
            hint = suggestion(given, known, "its inputs")
            raise UsageError(f"the model has no input {given!r}", hint=hint, code="E-USE-003")
        dims = known[name].shape
        if dims is not None and len(dims) != len(shape):
            hint = "write a size for each axis, `?|None` for one that stays open"
            raise UsageError(f"input {given!r} has {len(dims)} axes, not {len(shape)}", hint=hint, code="E-USE-004")
        wanted[name] = shape
        pairs = zip(dims or (), shape, strict=False)
        symbols |= {dim: size for dim, size in pairs if isinstance(dim, str) and isinstance(size, int) and size >= 0}
    return [replace(info, shape=_overlaid(info, wanted.get(info.name), symbols)) for info in infos]


def sized_by_name(infos: Sequence[TensorInfo], sizes: Mapping[str, int]) -> list[TensorInfo]:
    """Return ``infos`` with the sizes of dimensions by name. UsageError for a name that no input has."""
    known = {dim for info in infos for dim in info.shape or () if isinstance(dim, str)}
    for name in sizes:
        if name not in known:
            raise UsageError(f"no input has a dimension {name!r}", hint=suggestion(name, sorted(known), "they"))
    return [
        replace(info, shape=info.shape and tuple(sizes.get(d, d) if isinstance(d, str) else d for d in info.shape))
        for info in infos
    ]


def check_fixed(
    infos: Sequence[TensorInfo], shapes: Mapping[str, Sequence[int | str]], others: Mapping[str, str]
) -> None:
    """Raise UsageError for a size in ``shapes`` that differs from a static one in ``infos``; ``others`` as above.

    ONNX Runtime refuses it, where LiteRT resizes the model.
    """
    fixed = {info.name: info.shape or () for info in infos}
    for given, shape in shapes.items():
        pairs = zip(fixed.get(given, fixed.get(others.get(given, ""), ())), shape, strict=False)
        for axis, (have, want) in enumerate(pairs):
            if differ(have, want) and want != -1:
                message = f"axis {axis} of input {given!r} has {have} elements in the model, not {want}"
                hint = f"write {have}, or `?|None`, for this axis"
                raise UsageError(message, hint=hint, code="E-USE-004")


def _overlaid(
    info: TensorInfo, wanted: Sequence[int | str] | None, symbols: Mapping[str, int]
) -> tuple[int | str | None, ...] | None:
    """The shape of `info` with the requested sizes."""
    if info.shape is None and wanted is None:
        return None
    dims = info.shape or (None,) * len(wanted or ())
    dims = tuple(symbols.get(dim, dim) if isinstance(dim, str) else dim for dim in dims)
    return tuple(dim if size == -1 else size for dim, size in zip(dims, wanted or (-1,) * len(dims), strict=True))


def open_shapes(
    infos: Sequence[TensorInfo], fixed: Mapping[str, Sequence[int]], facts: ShapeFacts | None = None
) -> Iterator[Shapes]:
    """Yield shapes for all inputs, the ones that fit the graph first; a single list if all are static.

    ``fixed``: shapes by input name, which also determine their symbols.
    """
    facts, known = facts or ShapeFacts(), dict[str, int]()
    for info in infos:
        for dim, size in zip(info.shape or (), fixed.get(info.name, ()), strict=False):
            if isinstance(dim, str):
                known.setdefault(dim, int(size))

    one_batch = sum(bool(info.shape) and info.shape[0] is None for info in infos if info.shape) > 1

    def shapes_at(size_of: Callable[[Kind], int]) -> Shapes:
        symbols = dict(known)
        return [tuple(fixed[i.name]) if i.name in fixed else _sized(i, size_of, symbols, one_batch) for i in infos]

    usual = list[Shapes]()
    for number in range(max(map(len, SIZES.values()))):
        for batch in (2, 1):
            shapes = shapes_at(partial(_usual, number, batch))
            if shapes not in usual:
                usual.append(shapes)
    usual = [shapes for shapes in usual if sum(map(math.prod, shapes)) <= _MOST_ELEMENTS] or usual[:1]
    fitting = [shapes for shapes in usual if fits(infos, shapes, facts)]
    yield from fitting
    if not fitting and len(usual) > 1 and (facts.equal or facts.broadcast):
        precise = (shapes_at(partial(_precise, size)) for size in PRECISE)
        yield from islice((shapes for shapes in precise if fits(infos, shapes, facts)), 3)
    yield from (shapes for shapes in usual if shapes not in fitting)


def _usual(number: int, batch: int, kind: Kind) -> int:
    return batch if kind == "batch" else SIZES[kind][min(number, len(SIZES[kind]) - 1)]


def _precise(size: int, kind: Kind) -> int:
    return SIZES[kind][0] // 2 if kind == "batch" else 3 if kind == "channels" else size


def _sized(
    info: TensorInfo, size_of: Callable[[Kind], int], symbols: dict[str, int], one_batch: bool = False
) -> tuple[int, ...]:
    """Return the shape of `info` with sizes for dynamic dimensions; a symbol keeps its first size.

    ``one_batch``: leading axes without a name have the same size in all inputs.
    """
    shape = []
    for axis, dim in enumerate(info.shape or ()):
        kind: Kind = "batch" if one_batch and axis == 0 and dim is None else _kind(info, axis)
        size = size_or(dim, size_of(kind))
        shape.append(symbols.setdefault(dim, size) if isinstance(dim, str) else size)
    return tuple(shape)


def _kind(info: TensorInfo, axis: int) -> Kind:
    """Guess the kind of a dynamic axis from its name, the rank, the dtype and the other sizes."""
    shape = info.shape or ()
    is_float, dim = info.dtype.startswith(("float", "bfloat")), shape[axis]
    if len(shape) >= 4:
        return _kind_in_image(info, axis)
    mono = len(shape) < 3 or (axis == 2 and shape[1] in (1, 2))
    last: Kind = "ids" if not is_float else "signal" if mono and axis == len(shape) - 1 else "features"
    if isinstance(dim, str) and re.search(BATCH_NAME, dim.lower()):
        return "batch"
    if isinstance(dim, str) and re.search(LENGTH_NAME, dim.lower()):
        return last
    states = len(shape) == 3 and size_or(shape[0], 1) > 1 and is_static(shape[2:])
    return "batch" if (axis == 0 and len(shape) > 1) or (axis == 1 and states) else last


def _kind_in_image(info: TensorInfo, axis: int) -> Kind:
    """As `_kind`, for four axes or more: channels are the last axis if only its size is known, else the second."""
    shape = info.shape or ()
    last = is_static(shape[-1:]) and not is_static(shape[1:2])
    channels = len(shape) - 1 if last else 1
    if axis in (0, channels):
        return "batch" if axis == 0 else "channels"
    if len(shape) == 4:
        return "image" if size_or(shape[channels], 1) in (1, 3, 4) else "ids"
    return "volume"


def fits(infos: Sequence[TensorInfo], shapes: Shapes, facts: ShapeFacts) -> bool:
    """Whether for inputs of these shapes no tensor inside is empty, and sizes that have to be equal are."""
    env: dict[dims.Symbol, int] = {}
    for info, shape in zip(infos, shapes, strict=True):
        for dim, size in zip(facts.inputs.get(info.name, ()), shape, strict=False):
            name = next(dims.symbols(dim), None)
            if name is not None and dim == dims.symbol(name) and env.setdefault(name, size) != size:
                return False
    try:
        return (
            all(dims.evaluate(a, env) == dims.evaluate(b, env) for a, b in facts.equal)
            and all(_alike(dims.evaluate(a, env), dims.evaluate(b, env)) for a, b in facts.broadcast)
            and all(dims.evaluate(d, env) > 0 for d in facts.inner)
        )
    except KeyError:  # a size of an input that is not among `infos`
        return True


def _alike(a: int, b: int) -> bool:
    return a == b or 1 in (a, b)
