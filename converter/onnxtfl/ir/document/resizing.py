"""Resize over all axes."""

from __future__ import annotations

from collections.abc import Sequence

from onnxtfl.ir.attributes import Attribute, Choice
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.document.forms import document_form
from onnxtfl.ir.graph import Value
from onnxtfl.ir.op import Operand
from onnxtfl.ir.ops.gathering import Gather
from onnxtfl.ir.ops.resizing import Resize
from onnxtfl.ir.shapes import static_ints

_ENUMS = ("mode", "coordinate_transformation_mode", "nearest_mode")


def _upper(name: str) -> Attribute:
    ours = Resize.attributes[name]
    return Choice(*(choice.upper() for choice in ours.choices), default=ours.default.upper())


@document_form(
    Resize,
    Operand("input"),
    *(Operand(name, optional=True) for name in ("roi", "scales", "sizes")),
    attributes={name: _upper(name) for name in _ENUMS},
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
    """`roi`, `scales` and `sizes` have entries for all axes; either `scales` or `sizes` is given."""
    if (scales is None) is (sizes is None):
        raise ValueError("either scales or sizes")
    dims = _resized(x, scales, sizes) if roi is None else list(range(x.rank))
    given = [None if v is None else b(Gather, v, dims, axis=0) for v in (sizes, scales)]
    enums = zip(_ENUMS, (mode, coordinate_transformation_mode, nearest_mode), strict=True)
    return b(
        Resize,
        x,
        *Resize.trimmed([*given, roi]),
        dims=tuple(dims),
        **{name: value.lower() for name, value in enums},
        exclude_outside=exclude_outside,
        extrapolation_value=extrapolation_value,
        cubic_coeff_a=cubic_coeff_a,
    )


def _resized(x: Value, scales: Value | None, sizes: Value | None) -> Sequence[int]:
    """The axes whose size may change."""
    if scales is not None and scales.is_constant:
        return [i for i, factor in enumerate(scales.numpy().reshape(-1)) if factor != 1.0]
    known = None if sizes is None else static_ints(sizes)
    return [i for i, d in enumerate(x.shape) if known is None or known[i] != d]
