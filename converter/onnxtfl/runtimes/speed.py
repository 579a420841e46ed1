"""The effect of quantization: bytes and time of one run before and after, and the ops that became slower."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxtfl.runtimes.adapters import Runtime
from onnxtfl.runtimes.profiler import profile
from onnxtfl.runtimes.profiles import OpTime, Speed, SpeedChange

SECONDS = 20.0
"""The time limit for measuring both models; later measurements are omitted."""
NAMED = 4
"""How many kinds of ops are named."""
_ELEMENT_TYPES = re.compile(r" \([^)]*\)")
"""In names of XNNPACK's kernels: layout and types, as in "Convolution (NHWC, QC8)"."""


def speed_change(
    mode: str, paths: Sequence[str | os.PathLike[str]], inputs: Sequence[Sequence[Any]], runtime: Runtime | None
) -> SpeedChange:
    """Compare a float .tflite with its quantized version in a ``mode``; ``inputs``: those of each.

    Without a ``runtime`` only the bytes are compared.
    """
    sizes = [Path(path).stat().st_size for path in paths]
    until = time.monotonic() + SECONDS

    def measured(k: int, ops: bool) -> dict[str, Any]:
        left = until - time.monotonic()
        return profile(runtime, paths[k], inputs[k], left, ops=ops) if runtime is not None and left > 0 else {}

    first, second = (Speed.of(sizes[k], measured(k, ops=False)) for k in range(2))
    change = SpeedChange(mode, first, second)
    if not change.is_slower:
        return change
    times = [measured(k, ops=True).get("ops", ()) for k in range(2)]
    return SpeedChange(mode, first, second, added_times(*times) if all(times) else ())


def added_times(before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> tuple[OpTime, ...]:
    """The kinds of ops that take longer in the second of two profiles, with the milliseconds that each adds.

    An entry of a profile: name, op and milliseconds. XNNPACK's kernels of all element types are one kind.
    """
    added: dict[str, float] = {}
    for sign, entries in ((-1, before), (1, after)):
        for _, op, milliseconds in entries:
            kind = _ELEMENT_TYPES.sub("", op)
            added[kind] = added.get(kind, 0.0) + sign * milliseconds
    ranked = sorted(added.items(), key=lambda entry: -entry[1])
    total = sum(max(0.0, spent) for spent in added.values())
    return tuple(OpTime(kind, kind, spent) for kind, spent in ranked[:NAMED] if spent > 0.05 * total)
