"""How TFLite's kernels read quantized operands: the key `reads` of each op in ``schemas/tflite_ops.toml``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onnxtfl.schemas.sections import OPS, section


@dataclass(frozen=True, slots=True)
class Products:
    """The places of the operands of a kernel that adds up products, and the axis of the weights' output features.

    The bias is read in units of the products. `offset`: whether the kernel subtracts a zero point of weights that have
    one scale; it subtracts no others. `wide`: the types of weights of int16 activations; it reads the bytes of others
    as if they were of one of these. `blocks`: the types of weights whose blocks may have a scale each.
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
    """A kernel that reads the scale of each tensor of 8 or 16 bits: 0 where there is none.

    `plain`: the integers that it also computes as they are. `several`: whether it reads one for each index of an axis;
    if not, it reads 0 there too. `multiplied`: it multiplies the scales of its operands, in float32. `clamps`: where
    it is fused into another op, it only clamps. `rescales`: it reads one where operand and result have scales.
    `weights`: the operand whose zero point it does not subtract where the other one is real. `blocks`: the types of
    which it reads a scale for each block.
    """

    plain: tuple[str, ...] = ()
    several: bool = False
    multiplied: bool = False
    clamps: bool = False
    rescales: bool = False
    weights: int | None = None
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layers:
    """A kernel of a recurrent layer: it subtracts no zero points of the operands at `weights`.

    `biases`: (bias, operand, weights), the places of biases that it reads in units of these products, whatever their
    scale is. `norms`: the operands of layer normalization, with which it reads the biases otherwise.
    """

    weights: tuple[int, ...]
    biases: tuple[tuple[int, int, int], ...] = ()
    norms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Copies:
    """A kernel that returns the integers of the type `stored` as they are, and rescales others."""

    stored: str


Plain = Literal["real", "integers", "copies"]
Reading = Plain | Copies | Layers | Products | Scales
"""How a kernel reads quantized tensors; the head of the table says what each is."""
_PLAIN: dict[str, Plain] = {"real": "real", "integers": "integers", "copies": "copies"}
_KINDS: dict[str, type[Copies | Layers | Products | Scales]] = {
    "copies": Copies,
    "layers": Layers,
    "products": Products,
    "scales": Scales,
}


@functools.cache
def reading_of(op: str) -> Reading:
    """How the kernels of a builtin op read quantized tensors; KeyError if TFLite has no such op."""
    table = section(op)
    if not table:
        raise KeyError(op)
    return parse_reading(op, table)


def parse_reading(op: str, table: Mapping[str, Any]) -> Reading:
    """The reading in the `table` of an op; ValueError where there is none, or another than those above."""
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
    """A value of the file as the field's: element types are words, lists are tuples."""
    if isinstance(value, str) and name != "stored":
        return tuple(value.split())
    if isinstance(value, list):
        return tuple(tuple(part) if isinstance(part, list) else part for part in value)
    return value
