"""The greater and the smaller of two elements: Max, Min."""

from __future__ import annotations

import numpy as np

from onnxtfl.ir import intervals
from onnxtfl.ir.op import computed_by
from onnxtfl.ir.ops.arithmetic import Arithmetic

Max = computed_by(
    Arithmetic,
    "Max",
    np.maximum,
    "The greater; NaN where either is. Source: neutral-ops 3.76.",
    selects=slice(None),
    interval=intervals.larger,
    commutative=True,
    reduction="max",
    integers="order",
)
Min = computed_by(
    Arithmetic,
    "Min",
    np.minimum,
    "The smaller; NaN where either is. Source: neutral-ops 3.79.",
    selects=slice(None),
    interval=intervals.smaller,
    commutative=True,
    reduction="min",
    integers="order",
)
