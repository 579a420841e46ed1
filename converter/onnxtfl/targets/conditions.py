"""The terms of op version conditions in ``schemas/tflite_ops.toml`` (its head describes the language)."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

from onnxtfl.ir.graph import Value
from onnxtfl.ir.types import TensorType
from onnxtfl.targets.instance import Bound, OpInstance

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {">": operator.gt, "!=": operator.ne, "=": operator.eq}
_UNSET = (None, False, 0, 0.0, "", "NONE", "FLOAT32")


def holds(term: str, op: OpInstance) -> bool:
    """Whether one term holds for an op instance."""
    match _words(term):
        case ["broadcast"]:
            return len({t.shape for t in _types(op.operands[:2])}) > 1
        case ["rescale"]:
            return _rescales(op)
        case ["grouped"]:
            return _grouped(op)
        case ["rank", sign, number]:
            return _COMPARE[sign](op.highest_rank, int(number))
        case ["not", option]:
            return option in op.options and op.options[option] in _UNSET
        case [option]:
            return op.options.get(option) not in _UNSET
        case [option, sign, value] if sign in _COMPARE:
            return option in op.options and _COMPARE[sign](op.options[option], _literal(value))
        case [name, *words]:
            return _about(op.named(name), words)
    raise ValueError(f"no such term: {term!r}")


@functools.cache
def _words(term: str) -> list[str]:
    return term.split()


def _about(values: list[Value], words: list[str]) -> bool:
    if words == ["absent"]:
        return not values
    if words == ["present"]:
        return bool(values)
    types = [v.type for v in values if isinstance(v.type, TensorType)]
    if words == ["per-axis"]:
        return any(t.quantization is not None and not t.quantization.per_tensor for t in types)
    if words == ["unquantized"]:
        return any(t.quantization is None for t in types)
    if words[0] == "not":
        return any(t.storage.value not in words[1:] for t in types)
    return any(_is(t.storage.value, word) for t in types for word in words)


def _is(stored: str, word: str) -> bool:
    return stored.startswith(word) if word == "float8" else stored == word


def _types(values: Iterable[Bound]) -> list[TensorType]:
    return [v.type for _, _, v in values if isinstance(v.type, TensorType)]


def _rescales(op: OpInstance) -> bool:
    """Whether the product of the operands' scales is at least the result's."""
    scales = [t.quantization.scales[0] for t in _types((*op.operands[:2], *op.results[:1])) if t.quantization]
    return len(scales) == 3 and scales[0] * scales[1] / scales[2] >= 1.0


def _grouped(op: OpInstance) -> bool:
    """Whether the filter sees fewer channels than the input has (both channels last)."""
    channels = [t.shape[-1] for t in _types(op.operands[:2]) if t.shape]
    return len(channels) == 2 and channels[0] != channels[1]


def _literal(text: str) -> Any:
    return int(text) if text.lstrip("-").isdigit() else text
