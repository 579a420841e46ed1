"""Changes of inputs and outputs, and of float16: recorded by the passes that make them, printed in reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxtfl.ir.dtypes import DType


@dataclass
class Notes:
    """``elements``: the tensors of each sequence or optional; ``vectors``: inputs for maps, and their elements;
    ``complex_names``: inputs and outputs that became pairs of real numbers; ``held``: by name, the source's type and
    the new type of changed ones, and whether elements are only the bits; ``float16``: the number of ops that compute in
    it, and the others by op.
    """

    elements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: dict[str, str] = field(default_factory=dict)
    complex_names: list[str] = field(default_factory=list)
    held: dict[str, tuple[DType, DType, bool]] = field(default_factory=dict)
    float16: tuple[int, dict[str, int]] | None = None
