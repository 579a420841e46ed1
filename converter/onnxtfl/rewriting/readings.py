"""How TFLite's kernels read quantized operands: the key `reads` of each op in ``schemas/tflite_ops.toml``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal

from onnxtfl.dataclass import dataclass
from onnxtfl.schemas.sections import OPS, section


@dataclass(frozen=True, slots=True)
class Products:
    """A kernel that accumulates products: the operand indices, and the axis of the weights' output features.

    The bias has the scale of the products. `offset`: whether the kernel subtracts the zero point of weights with a
    single scale (it never subtracts several). `wide`: the types of weights for int16 activations; bytes of other types
    are reinterpreted. `blocks`: the types of weights that may have blockwise scales.
    """

    x: int
    weights: int
    bias: int
    axis: int
    offset: bool = False
    wide: tuple[str, ...] = ("int8", "int4")
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scales:
    """A kernel that reads the scale of each 8-bit or 16-bit tensor: 0 if there is none.

    `plain`: integer types that it also computes without a scale. `several`: whether it reads per-axis scales; if not,
    it reads 0 for them. `multiplied`: it multiplies the operand scales in float32. `clamps`: fused into another op, it
    only clamps. `rescales`: it reads scales only if both operand and result have one. `weights`: the operand whose zero
    point is ignored if the other one is real. `blocks`: the types with blockwise scales. `sums`: the integer types of
    results that are the sums of the products of the stored integers; then no scale or zero point is read.
    """

    plain: tuple[str, ...] = ()
    several: bool = False
    multiplied: bool = False
    clamps: bool = False
    rescales: bool = False
    weights: int | None = None
    blocks: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layers:
    """A kernel of a recurrent layer: it ignores the zero points of the operands `weights`.

    `biases`: (bias, operand, weights): indices of biases that it reads with the scale of the product, ignoring theirs.
    `norms`: the operands of layer normalization; with these it reads the biases' scales.
    """

    weights: tuple[int, ...]
    biases: tuple[tuple[int, int, int], ...] = ()
    norms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copies:
    """A kernel that copies integers of type `stored` and rescales others."""

    stored: str


Plain = Literal["real", "integers", "copies"]
Reading = Plain | Copies | Layers | Products | Scales
"""How a kernel reads quantized tensors; see the head of the table."""
_PLAIN: dict[str, Plain] = {"real": "real", "integers": "integers", "copies": "copies"}
_KINDS: dict[str, type[Copies | Layers | Products | Scales]] = {
    "copies": Copies,
    "layers": Layers,
    "products": Products,
    "scales": Scales,
}


@functools.cache
def reading_of(op: str) -> Reading:
    """Return how the kernels of a builtin op read quantized tensors. KeyError for an unknown op."""
    table = section(op)
    if not table:
        raise KeyError(op)
    return parse_reading(op, table)


def parse_reading(op: str, table: Mapping[str, Any]) -> Reading:
    """Parse the reading in the `table` of an op. ValueError if it is missing or unknown."""
    match table.get("reads"):
        case None:
            raise ValueError(f"{OPS}: {op} has no `reads`: state how its kernels read quantized operands")
        case str() as plain if plain in _PLAIN:
            return _PLAIN[plain]
        case dict() as found if len(found) == 1 and (kind := next(iter(found))) in _KINDS:
            try:
                return _KINDS[kind](**{name: _value(name, value) for name, value in found[kind].items()})
            except TypeError as error:
                raise ValueError(f"{OPS}: {op}: {error}") from error
        case other:
            raise ValueError(f"{OPS}: {op}: no kernel reads {other!r}")


def _value(name: str, value: Any) -> Any:
    """Convert a value of the file: split words to element types, lists to tuples."""
    if isinstance(value, str) and name != "stored":
        return tuple(value.split())
    if isinstance(value, list):
        return tuple(tuple(part) if isinstance(part, list) else part for part in value)
    return value
