"""The arguments of the public functions: each is checked once, by its name, before anything is read."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onnxtfl.errors import UsageError

LARGEST_SIZE = 2**31 - 1
Size = int | str | None
"""A size of an input: a number; a name, which sizes that are equal share; None or -1 for one that is open."""


def checked(**given: Any) -> dict[str, Any]:
    """Return the arguments in the form that the package uses. Raises `UsageError` for the first invalid one."""
    return {name: _PARAMETERS[name](name, value) for name, value in given.items()}


def refuse(name: str, value: object, use: str) -> UsageError:
    """The error for an argument that is not possible."""
    shown = value if isinstance(value, str | int | float) or value is None else type(value).__name__
    return UsageError(f"`{name}` cannot be {shown!r}", hint=f"use {use}")


Check = Callable[[str, Any], Any]


def _one_of(*allowed: object) -> Check:
    use = f"one of {', '.join(map(repr, allowed))}"

    def check(name: str, value: Any) -> Any:
        if not any(value is other or (isinstance(value, str) and value == other) for other in allowed):
            raise refuse(name, value, use)
        return value

    return check


def _number(above: float | None = None, least: float | None = None) -> Check:
    use = f"a number above {above:g}" if above is not None else f"a number of at least {least:g}"

    def check(name: str, value: Any) -> float:
        valid = _is_real(value) and math.isfinite(value)
        if not valid or (above is not None and value <= above) or (least is not None and value < least):
            raise refuse(name, value, use)
        return float(value)

    return check


def _integer_or_none(least: int, most: int) -> Check:
    check = _integer(least, most)
    return lambda name, value: None if value is None else check(name, value)


def _integer(least: int, most: int | None = None) -> Check:
    use = f"an integer of at least {least}" if most is None else f"an integer from {least} to {most}"

    def check(name: str, value: Any) -> int:
        if not _is_integer(value) or value < least or (most is not None and value > most):
            raise refuse(name, value, use)
        return int(value)

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refuse(name, value, "True or False")
    return value


def _text(name: str, value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise refuse(name, value, "a string")
    return value


def _layouts(name: str, value: Any) -> str | dict[str, str]:
    """A layout, or a dictionary from names to layouts."""
    known = _one_of("source", "channels-first", "channels-last")
    if not isinstance(value, Mapping):
        return str(known(name, value))
    layouts = _mapping(name, value, "a layout, or a dictionary of input or output name and layout")
    return {tensor: str(known(name, layout)) for tensor, layout in layouts.items()}


def _names(name: str, value: Any) -> list[str] | None:
    """A list of names; a string would be one of letters."""
    if value is None:
        return None
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    found = list(value) if is_list else []
    if not is_list or not all(isinstance(one, str) and one for one in found):
        raise refuse(name, value, f"a list of tensor names{f', [{value!r}]' if isinstance(value, str) else ''}")
    twice = next((one for k, one in enumerate(found) if one in found[:k]), None)
    if twice is not None:
        raise UsageError(f"`{name}` names {twice!r} twice")
    return found or None


def _elements(name: str, value: Any) -> dict[str, int | None]:
    counts = _mapping(name, value, "a dictionary of input name and number of elements")
    for count in counts.values():
        if count is not None and not _is_integer(count):
            raise refuse(name, count, "numbers, None for an optional input without a value")
    return counts


def input_shapes(name: str, value: Any) -> dict[str, tuple[int | str, ...]]:
    """The shapes by input name; -1: a size that is open, a name: one that is open and called so."""
    shapes = _mapping(name, value, "a dictionary of input name and sizes")
    return {input_: _shape(input_, shape) for input_, shape in shapes.items()}


def _shape(input_: str, shape: Any) -> tuple[int | str, ...]:
    hint = f"use sizes from 0 to {LARGEST_SIZE}, a name, or `?|None` for one that is open"
    if isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
        raise UsageError(f"invalid shape {shape!r} for input {input_!r}", hint=hint, code="E-USE-004")
    sizes = [-1 if size is None else size for size in shape]
    if not all(_is_size(size) for size in sizes):
        shown = ",".join("?" if size is None else str(size) for size in sizes)
        raise UsageError(f"invalid shape {shown} for input {input_!r}", hint=hint, code="E-USE-004")
    return tuple(size if isinstance(size, str) else int(size) for size in sizes)


def _is_size(size: Any) -> bool:
    if isinstance(size, str):
        return re.fullmatch(r"[A-Za-z_]\w*", size) is not None
    return _is_integer(size) and -1 <= size <= LARGEST_SIZE


def _ranges(name: str, value: Any) -> dict[str, tuple[float, float]]:
    """The lowest and highest values by input name."""
    ranges = _mapping(name, value, "a dictionary of input name, and lowest and highest value")
    for input_, pair in ranges.items():
        numbers = [*pair] if isinstance(pair, Sequence) else []
        if len(numbers) != 2 or not all(map(_is_real, numbers)) or not -math.inf < numbers[0] <= numbers[1] < math.inf:
            raise refuse(name, f"{input_}: {pair}", "a lowest and a highest value for each input, like (-1, 1)")
    return {input_: (float(low), float(high)) for input_, (low, high) in ranges.items()}


def _data(name: str, value: Any) -> Any:
    """Arrays for a check: a path, arrays by name, or several of these."""
    sets = [value] if isinstance(value, Mapping) else value
    if value is None or (isinstance(value, str | os.PathLike) and os.fspath(value)):
        return value
    if not isinstance(sets, Sequence) or isinstance(sets, str | bytes) or not sets:
        raise refuse(
            "inputs", value, "arrays by input name, a list of such, or the path of an .npz file or a directory"
        )
    for one in sets:
        _mapping("inputs", one, "arrays by input name")
    return value


def _mapping(name: str, value: Any, use: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise refuse(name, value, use)
    return dict(value)


def _folder(name: str, value: Any) -> Any:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise refuse(name, value, "the path of a folder")
    return value


def _paths(name: str, value: Any) -> list[Any]:
    """Paths of models; one path may stand alone."""
    listed = [value] if isinstance(value, str | os.PathLike) else value
    found = list(listed) if isinstance(listed, Iterable) and not isinstance(listed, bytes | Mapping) else [None]
    if not all(isinstance(one, str | os.PathLike) for one in found):
        raise refuse(name, value, "a list of paths")
    return found


def _path(name: str, value: Any) -> Any:
    if value is not None and (not isinstance(value, str | os.PathLike) or not os.fspath(value)):
        raise refuse(name, value, "the path of a file")
    return value


def _runtime(name: str, value: Any) -> str:
    """A version of the TFLite runtime; a number is read as one."""
    text = str(value) if _is_real(value) else value
    if not isinstance(text, str) or not re.fullmatch(r"(litert-)?\d+(\.\d+)*", text):
        raise refuse(name, value, "a version like 2.14")
    return text


def _callback(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise refuse(name, value, "a function")
    return value


def _is_real(value: Any) -> bool:
    """True for numbers of Python and NumPy."""
    return not isinstance(value, bool | str) and hasattr(value, "__float__") and not hasattr(value, "__len__")


def _is_integer(value: Any) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and not hasattr(value, "__len__")


def model_kind(model: Any, name: str, kinds: Sequence[str]) -> None:
    """Raise UsageError for what is no model: a path, bytes, or a proto where that is one of ``kinds``."""
    if isinstance(model, bytes | bytearray | memoryview | str | os.PathLike):
        return
    if "an onnx.ModelProto" in kinds and type(model).__name__ == "ModelProto":
        return
    raise refuse(name, model, " or ".join([", ".join(kinds[:-1]), kinds[-1]]))


_PARAMETERS: Mapping[str, Check] = {
    "path": _path,
    "check": _one_of(True, False, "auto", "require"),
    "io_layout": _layouts,
    "io_dtype": _one_of("source", "float32", "bits"),
    "quantized_io": _one_of("source", "float", "int8", "uint8"),
    "quantized": _one_of("qdq", "qoperator", "float"),
    "dynamic_quant": _one_of("exact", "hybrid"),
    "lstm": _one_of("exact", "fused"),
    "state": _one_of("io", "reset"),
    "float16": _one_of("float32", "native"),
    "float64": _one_of("narrow", "error"),
    "quantize": _one_of(None, "dynamic", "int8", "int16x8", "float16"),
    "opset": _integer_or_none(13, 24),
    "min_runtime": _runtime,
    "target": _one_of("tflite", "micro"),
    "input_shapes": input_shapes,
    "elements": _elements,
    "inputs": _names,
    "outputs": _names,
    "signature": _text,
    "rtol": _number(least=0),
    "atol": _number(least=0),
    "seed": _integer(0, 2**32 - 1),
    "time_limit": _number(above=0),
    "max_memory": _number(least=0),
    "steps": _integer(1),
    "keep_failed": _flag,
    "load": _flag,
    "metadata": lambda name, value: _mapping(name, value, "a dictionary of names and texts") or None,
    "per_layer": _flag,
    "profile": _flag,
    "record": _flag,
    "allow_custom": _flag,
    "plugins": lambda name, value: _names(name, value) or [],
    "data": _data,
    "random": _integer(1, 100_000),
    "max_steps": _number(least=0),
    "input_ranges": _ranges,
    "runtime": _one_of(None, "litert", "tflite-runtime", "micro"),
    "on_progress": _callback,
    "on_outcome": _callback,
    "jobs": lambda name, value: None if value is None else _integer(1)(name, value),
    "force": _flag,
    "address": _text,
    "models": _paths,
    "directory": _folder,
    "executor": _one_of("processes", "dask"),
    "to": _one_of("tflite", "onnx"),
    "on_conversion": _callback,
    "stage": _text,
    "code": _text,
}
