"""What became of inputs and outputs, and of float16: noted by the passes that change them, told in reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxtfl.ir.dtypes import DType


@dataclass
class Notes:
    """``elements``: the tensors of each sequence or optional; ``vectors``: inputs for maps, and what they hold;
    ``complex_names``: inputs and outputs that became pairs of real numbers; ``held``: by name, the types of those that
    have another one, and whether it has the bits only; ``float16``: how many ops compute in it, and the others by op.
    """

    elements: dict[str, tuple[str, ...]] = field(default_factory=dict)
    vectors: dict[str, str] = field(default_factory=dict)
    complex_names: list[str] = field(default_factory=list)
    held: dict[str, tuple[DType, DType, bool]] = field(default_factory=dict)
    float16: tuple[int, dict[str, int]] | None = None
