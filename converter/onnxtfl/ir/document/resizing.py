"""Resize over all axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from onnxtfl.ir.attributes import Attribute, Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.dims import is_static
from onnxtfl.ir.document.forms import Statement, document_form
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.op import NUMERIC, Operand
from onnxtfl.ir.ops.casts import Convert
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.resizing import Resize
from onnxtfl.ir.reshape import dim_value, iota
from onnxtfl.ir.shapes import static_ints
from onnxtfl.ir.types import DType

_ENUMS = ("mode", "coordinate_transformation_mode", "nearest_mode")


def _upper(name: str) -> Attribute:
    ours = Resize.attributes[name]
    return Choice(*(choice.upper() for choice in ours.choices), default=ours.default.upper())


def _printed(node: Node) -> Statement | None:
    x, vectors = node.operand(0), [node.optional(i) for i in (1, 2, 3)]
    sizes = None if vectors[0] is None else static_ints(vectors[0])
    if node.attr("antialias") or vectors[1:] != [None, None] or sizes is None or not is_static(x.shape):
        return None
    known = {**dict(enumerate(x.shape)), **dict(zip(node.attr("dims"), sizes, strict=True))}
    whole = constant(np.asarray([known[a] for a in range(x.rank)], np.int64))
    kept = {name: value for name, value in node.attributes.items() if name not in ("dims", "antialias")}
    enums = {name: value.upper() for name, value in kept.items() if name in _ENUMS}
    return Statement([x, None, None, whole], {**kept, **enums})


@document_form(
    Resize,
    Operand("input"),
    *(Operand(name, optional=True) for name in ("roi", "scales", "sizes")),
    attributes={name: _upper(name) for name in _ENUMS},
    printed=_printed,
    widened=True,
)
def _resize(
    b: Builder,
    x: Value,
    roi: Value | None,
    scales: Value | None,
    sizes: Value | None,
    mode: str = "",
    coordinate_transformation_mode: str = "",
    exclude_outside: bool = False,
    nearest_mode: str = "",
    extrapolation_value: float = 0.0,
    cubic_coeff_a: float = -0.75,
) -> Value:
    """`roi`, `scales` and `sizes` have entries for all axes; either `scales` or `sizes` is given.

    Elements without arithmetic (bools, strings, complex numbers) need mode NEAREST and no `roi`.
    """
    if (scales is None) is (sizes is None):
        raise ValueError("either scales or sizes")
    dims = _resized(x, scales, sizes) if roi is None else list(range(x.rank))
    given = [None if v is None else b.computed(Gather, v, dims, axis=0) for v in (sizes, scales)]
    enums = zip(_ENUMS, (mode, coordinate_transformation_mode, nearest_mode), strict=True)
    attributes = {name: value.lower() for name, value in enums}
    if x.dtype not in NUMERIC:
        return _gathered(b, x, dims, given, attributes)
    return b(
        Resize,
        x,
        *Resize.trimmed([*given, roi]),
        dims=tuple(dims),
        **attributes,
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        cubic_coeff_a=cubic_coeff_a,
    )


def _gathered(
    b: Builder, x: Value, dims: Sequence[int], given: Sequence[Value | None], attributes: Mapping[str, str]
) -> Value:
    """Return `x` with each axis of `dims` gathered at the indices 0, 1, 2, ..., resampled like the elements."""
    if attributes["mode"] != "nearest" or attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        raise TypeError(f"interpolated or extrapolated elements of type {x.dtype.value}")
    for i, axis in enumerate(dims):
        count = b(Convert, iota(b, dim_value(b, x.shape[axis], x)), dtype=DType.INT32)
        own = [None if v is None else b.computed(Gather, v, [i], axis=0) for v in given]
        x = b(Gather, x, b(Resize, count, *Resize.trimmed(own), dims=(0,), **attributes), axis=axis)
    return x


def _resized(x: Value, scales: Value | None, sizes: Value | None) -> Sequence[int]:
    """The axes whose size may change."""
    if scales is not None and scales.is_constant:
        return [i for i, factor in enumerate(scales.numpy().reshape(-1)) if factor != 1.0]
    known = None if sizes is None else static_ints(sizes)
    return [i for i, d in enumerate(x.shape) if known is None or known[i] != d]
