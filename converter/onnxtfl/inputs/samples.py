"""Arrays with a leading axis of samples, for calibration and for a check.

::

    input x [1, C, H, W], array x [N, 1, C, H, W]   ->   N samples with x [1, C, H, W]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxtfl.errors import UsageError


def samples_of(arrays: Mapping[str, Any], ranks: Mapping[str, int | None]) -> list[dict[str, Any]]:
    """The samples in `arrays`, if these have one axis more than their inputs; otherwise `arrays` are one sample.

    `ranks`: the rank of the input of each array, None where it is not known. Raises `UsageError` if only some arrays
    have an axis of samples, or axes of different lengths or of length 0.
    """
    known = {name: rank for name in arrays if (rank := ranks.get(name)) is not None}
    counts = {name: len(arrays[name]) for name, rank in known.items() if np.ndim(arrays[name]) == rank + 1}
    if not counts:
        return [dict(arrays)]
    if len(counts) < len(arrays) or len(set(counts.values())) > 1:
        shown = ", ".join(f"{name!r} {counts.get(name, 'none')}" for name in arrays)
        hint = "give all arrays a first axis of one length, or none of them"
        raise UsageError(f"the arrays have different numbers of samples: {shown}", hint=hint)
    if 0 in counts.values():
        raise UsageError(f"the array for {next(iter(counts))!r} has no samples: the length of its first axis is 0")
    return [{name: array[k] for name, array in arrays.items()} for k in range(min(counts.values()))]
