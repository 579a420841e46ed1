"""The terms of conditions on an op instance, for op versions and for the limits of targets.

The heads of ``schemas/tflite_ops.toml`` and ``schemas/targets/tflite.toml`` list them.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from onnxtfl.ir import ops
from onnxtfl.ir.dims import size_or
from onnxtfl.ir.facts import facts_of
from onnxtfl.ir.graph import Node, Value
from onnxtfl.ir.quantized import quantization_of
from onnxtfl.ir.types import DType, TensorType, shape_of
from onnxtfl.targets.instance import Bound, OpInstance

Sizes = Sequence[int]


def reads_producers(condition: str) -> bool:
    """Whether a condition depends on the ops around this one, besides the types of values and which are constant."""
    ends = (" finite", " bounded", " inside", " distinct", " nonnegative")
    inner = (" not of ", " not before ")
    return any(term.endswith(ends) or any(found in term for found in inner) for term in condition.split(" or "))


def within(condition: str, op: OpInstance) -> bool:
    """Whether ``condition``, "TERM or TERM", holds for an op instance."""
    return any(holds(term, op) for term in condition.split(" or "))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {">": operator.gt, "!=": operator.ne, "=": operator.eq}
_STORAGES = frozenset({*(dtype.value for dtype in DType), "float8"})
_UNSET = (None, False, 0, 0.0, "", "NONE", "FLOAT32")


def holds(term: str, op: OpInstance) -> bool:
    """Whether one term holds for an op instance."""
    words = _words(term)
    found = _of_op(words, op)
    return _of_tensors(op.named(words[0]), words[1:], op) if found is None else found


def _of_op(words: Sequence[str], op: OpInstance) -> bool | None:
    """Whether a term about the op or its options holds; None for other terms."""
    match words:
        case ["broadcast"]:
            return len({t.shape for t in _types(op.operands[:2])}) > 1
        case ["rescale"]:
            return _rescales(op)
        case ["grouped"] | ["ungrouped"]:
            return _is_grouped(op) == (words == ["grouped"])
        case ["whole"]:
            return _is_whole(op)
        case ["aligned"]:
            return _is_aligned(op)
        case ["rank", sign, number]:
            return _COMPARE[sign](op.highest_rank, int(number))
        case ["strides", "inner"]:
            return all(_is_inner(_constant(v)) for v in op.named("strides"))
        case ["axes", "sizes", "<", limit]:
            return all(size < int(limit) for size in _reduced(op))
        case ["axes", "product", "<", limit]:
            return math.prod(_reduced(op)) < int(limit)
        case ["scaled", *factors]:
            return _is_scaled(op, factors)
        case ["rescales", "<", limit]:
            before, after = ([s for _, _, v in side for s in _scales_of(v)] for side in (op.operands, op.results))
            return max(before, default=0.0) < float(limit) * min(after, default=1.0)
        case ["rescales", ">", limit]:
            before, after = ([s for _, _, v in side for s in _scales_of(v)] for side in (op.operands, op.results))
            return not before or min(before) > float(limit) * max(after, default=0.0)
        case ["not", option]:
            return option in op.options and op.options[option] in _UNSET
        case [option]:
            return op.options.get(option) not in _UNSET
        case [option, "is", other]:
            return bool(op.options.get(option) == op.options.get(other))
        case [option, "<", limit] if option in op.options:
            return int(op.options[option]) < int(limit)
        case [option, sign, value] if sign in _COMPARE:
            return option in op.options and _COMPARE[sign](op.options[option], _literal(value))
    return None


def _of_tensors(values: Sequence[Value], words: Sequence[str], op: OpInstance) -> bool:
    """Whether a term about operands or results of one name, `values`, holds."""
    match words:
        case [measure, *numbers, "<", limit] if measured := _MEASURES.get(measure):
            return all(measured(_sizes(v), *map(int, numbers)) < int(limit) for v in values)
        case ["fixed"]:
            return all(v.is_constant for v in values)
        case ["finite"]:
            return not any(may_be_masked(v) for v in values)
        case ["bounded"]:
            return not any(_may_be_infinite(v) for v in values)
        case ["distinct"]:
            return all(sum(v is w for _, _, w in op.operands) == 1 for v in values)
        case ["inside"]:
            return not any(is_shown(v) and len(_readers(v)) > 0 for v in values)
        case ["nonnegative"]:
            return all(_is_nonnegative(v) for v in values)
        case ["not", "before", reader]:
            return not any(_leads_to(v, reader) for v in values)
        case ["not", "of", maker]:
            return not any(_is_made_by(v, maker) for v in values)
        case ["last"]:
            return all(axis in (-1, _rank(op) - 1) for v in values for axis in _constant(v))
        case ["inner"]:
            return all(axis not in (-1, _rank(op) - 1) for v in values for axis in _constant(v))
        case ["absent"] | ["present"]:
            return bool(values) == (words == ["present"])
    types = [v.type for v in values if isinstance(v.type, TensorType)]
    if words == ["per-axis"]:
        return any(t.quantization is not None and not t.quantization.per_tensor for t in types)
    if words == ["unquantized"]:
        return any(t.quantization is None for t in types)
    if types and not set(words[words[0] == "not" :]) <= _STORAGES:
        raise ValueError(f"no such term: {' '.join(words)!r}")
    if words[0] == "not":
        return any(t.storage.value not in words[1:] for t in types)
    return any(_is_stored_as(t, word) for t in types for word in words)


@functools.cache
def _words(term: str) -> list[str]:
    return term.split()


def _literal(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text


def _is_stored_as(type_: TensorType, word: str) -> bool:
    return type_.storage.value.startswith(word) if word == "float8" else type_.storage.value == word


def _types(values: Iterable[Bound]) -> list[TensorType]:
    return [v.type for _, _, v in values if isinstance(v.type, TensorType)]


def _rescales(op: OpInstance) -> bool:
    """Whether the product of the operands' scales is at least the result's."""
    scales = [t.quantization.scales[0] for t in _types((*op.operands[:2], *op.results[:1])) if t.quantization]
    return len(scales) == 3 and scales[0] * scales[1] / scales[2] >= 1.0


def _is_grouped(op: OpInstance) -> bool:
    """Whether the filter has fewer channels than the input (both channels last)."""
    channels = [t.shape[-1] for t in _types(op.operands[:2]) if t.shape]
    return len(channels) == 2 and channels[0] != channels[1]


_LOWEST = -65504.0
"""The lowest float16: lower constants are masks."""
_FIRST = 4
"""The elements that one invocation of a GPU kernel reads."""
_DEPTH = 8
"""The most producers in a chain that are visited."""


def may_be_masked(value: Value, depth: int = _DEPTH) -> bool:
    """Whether elements of a float tensor may be -inf, as those of a mask are.

    Sums of products are taken for finite, inputs of a neutral graph are not. In the graph of a file, only constants
    that are added or moved are masks, and only if they mask the first elements of a row, since kernels start there.
    """
    node = value.producer
    if not isinstance(value.type, TensorType) or not value.dtype.is_float:
        return False
    if value.data is not None:
        masked = value.numpy() < _LOWEST
        return bool(np.any(np.all(masked[..., :_FIRST], axis=-1) if _is_in_file(value) and masked.ndim else masked))
    if node is None or depth == 0:
        return not _is_in_file(value)
    if node.op.dialect == "tfl":
        operands = node.present_operands
        return node.op.name_in_file in _MASKING and any(may_be_masked(v, depth - 1) for v in operands)
    if node.op.dialect != "neutral" or node.op.multiplies in ("matrices", "windows") or facts_of(value).low >= _LOWEST:
        return False
    return any(may_be_masked(v, depth - 1) for v in node.present_operands)


def _may_be_infinite(value: Value) -> bool:
    """Whether elements may be infinite; results of ops that are lowered are taken for finite."""
    is_lowered = value.producer is not None and value.producer.op.dialect != "neutral"
    return not is_lowered and facts_of(value).magnitude == math.inf


_MASKING = (
    "ADD",
    "SUB",
    "MUL",
    "SELECT_V2",
    "SELECT",
    "RESHAPE",
    "TRANSPOSE",
    "CONCATENATION",
    "PAD",
    "SLICE",
    "GATHER",
)
"""The ops that add masks to other tensors, or move them."""
_NONNEGATIVE = ("RELU", "RELU6", "RELU_0_TO_1", "LOGISTIC", "SOFTMAX", "ABS", "SQUARE", "SQRT", "EXP")
"""The ops without negative results; some also as fused activations."""
_MOVING = ("PAD", "RESHAPE", "TRANSPOSE", "MAX_POOL_2D", "AVERAGE_POOL_2D", "STRIDED_SLICE", "SLICE", "CONCATENATION")
"""The ops without negative results if there are none among their operands; PAD adds zeros."""


def _is_nonnegative(value: Value, depth: int = _DEPTH) -> bool:
    """Whether no element of a value in the graph of a file is negative, as far as the op that computes it tells.

    Not asked of neutral graphs, whose facts may not be those of the file's ops.
    """
    node = value.producer
    if value.data is not None:
        return bool(np.all(value.numpy() >= 0))
    if node is None or node.op.dialect != "tfl" or depth == 0:
        return False
    if node.op.name_in_file in _NONNEGATIVE or node.attributes.get("fused_activation_function") in _NONNEGATIVE:
        return True
    floats = (v for v in node.present_operands if isinstance(v.type, TensorType) and v.dtype.is_float)
    return node.op.name_in_file in _MOVING and all(_is_nonnegative(v, depth - 1) for v in floats)


def _is_in_file(value: Value) -> bool:
    """Whether ops of a file, not neutral ones, read `value`."""
    return any(user.op.dialect == "tfl" for user, _ in value.uses)


def is_shown(value: Value) -> bool:
    """Whether `value`, or a Reshape of it, is an output of its graph."""
    graph = value.producer.graph if value.producer is not None else None
    if graph is not None and value in graph.outputs:
        return True
    return any(is_shown(user.result) for user, _ in value.uses if _reshapes(user))


def _readers(value: Value) -> list[Node]:
    """The nodes that read `value`, or a Reshape of it, except for Reshapes."""
    readers = [[user] if not _reshapes(user) else _readers(user.result) for user, _ in value.uses]
    return [node for found in readers for node in found]


def _reshapes(node: Node) -> bool:
    return node.op is ops.Reshape or node.op.name == "tfl.RESHAPE"


_NEAR = 6
"""The most ops from the first to the last one of those that become one."""


def _leads_to(value: Value, op: str, depth: int = _NEAR) -> bool:
    """Whether an op of this name, in the table's notation, depends on `value` by few ops. Unknown in neutral graphs."""
    if depth == 0 or not _is_in_file(value):
        return depth > 0
    users = [user for user, _ in value.uses]
    return any(u.op.name_in_file == op or any(_leads_to(r, op, depth - 1) for r in u.results if r.uses) for u in users)


def _is_made_by(value: Value, op: str) -> bool:
    """Whether an op of this name, in the table's notation, computes `value`."""
    node = value.producer
    return node is not None and (node.op.name_in_file or node.op.name).upper() == op


def _scales_of(value: Value) -> Sequence[float]:
    """The scales of a quantized tensor, none of another."""
    quantization = quantization_of(value)
    return () if quantization is None else quantization.scales


def _batch(sizes: Sizes) -> int:
    return math.prod(sizes[:-3])


def _area(sizes: Sizes) -> int:
    return math.prod(sizes[-3:-1])


def _line(sizes: Sizes) -> int:
    """The smallest of the last three sizes; 1 if there are fewer."""
    return min(sizes[-3:]) if len(sizes) > 2 else 1


def _turned(sizes: Sizes) -> int:
    """The largest product of all axes but two; of at most three, without leading axes of size 1, the largest one."""
    if all(size == 1 for size in sizes[:-3]):
        return max(sizes, default=1)
    return max(map(math.prod, itertools.combinations(sizes, len(sizes) - 2)))


def _size(sizes: Sizes, axis: int) -> int:
    return sizes[axis] if -len(sizes) <= axis < len(sizes) else 1


_MEASURES: dict[str, Callable[..., float]] = {
    "batch": _batch,
    "area": _area,
    "line": _line,
    "turned": _turned,
    "size": _size,
}
"""The measures of a tensor's sizes, by their names in terms."""


def _sizes(value: Value) -> Sizes:
    """The sizes of a tensor, unknown ones as 1, as Vela takes them."""
    return [size_or(size, 1) for size in shape_of(value.type) or ()]


def _constant(value: Value) -> list[int]:
    return value.numpy().reshape(-1).tolist() if value.is_constant else []


def _rank(op: OpInstance) -> int:
    return op.ranks["T"]


def _reduced(op: OpInstance) -> list[int]:
    """The sizes of the axes that a reduction reduces."""
    sizes = [_sizes(v) for v in op.named("input")]
    return [sizes[0][axis] for v in op.named("axes") for axis in _constant(v)] if sizes else []


def _is_inner(strides: Sequence[int]) -> bool:
    """Whether a slice skips elements along the last but one and last but two axes only."""
    return all(step == 1 or (step > 0 and i in (len(strides) - 2, len(strides) - 3)) for i, step in enumerate(strides))


def _is_scaled(op: OpInstance, factors: Sequence[str]) -> bool:
    """Whether both axes of an image are scaled by one of ``factors``, the same one unless "each" is the first of them.

    An image of one pixel, and one of unchanged size, may be scaled by any; if an axis stays 1, the other one decides.
    """
    (x, y) = (_sizes(side[0][2])[1:3] for side in (op.operands, op.results))
    if x in ([1, 1], y):
        return True
    corner = 1 if op.options.get("align_corners") else 0
    pairs = [(b - corner, a - corner) for a, b in zip(x, y, strict=True) if (a, b) != (1, 1)]
    if any(below < 1 for _, below in pairs):
        return False
    scales = {above / below for above, below in pairs}
    each = factors[:1] == ["each"]
    return scales <= set(map(float, factors[each:])) and (each or len(scales) == 1)


def _is_whole(op: OpInstance) -> bool:
    """Whether the result of a transposed convolution has all positions that its padding says, and no more."""
    same = op.options.get("padding") == "SAME"
    return all(n * s + (0 if same else max(k - s, 0)) == m for n, k, m, s in _windows(op))


def _is_aligned(op: OpInstance) -> bool:
    """Whether a transposed convolution is padded like a convolution of its input with the same windows."""
    return all(_padding(n, k, s) == _padding(m, k, s) for n, k, m, s in _windows(op))


def _padding(size: int, window: int, stride: int) -> int:
    """The elements of padding SAME before the first one of an axis."""
    return max((math.ceil(size / stride) - 1) * stride + window - size, 0) // 2


def _windows(op: OpInstance) -> Iterator[tuple[int, int, int, int]]:
    """The sizes of input, filter and result of a transposed convolution and its stride, for height and width."""
    (x,), (w,), y = op.named("input"), op.named("weights"), op.results[0][2]
    steps = [int(op.options[name]) for name in ("stride_h", "stride_w")]
    return zip(*(_sizes(v)[1:3] for v in (x, w, y)), steps, strict=True)
