"""What quantizing changed: bytes and the time of one run before and after, and which ops take the time that it adds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnxtfl.checking.models.description import TensorInfo
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.profile import OpTime, Speed, SpeedChange
from onnxtfl.ir.quantization import dequantize
from onnxtfl.runtimes import RUNTIMES
from onnxtfl.runtimes.profiler import profile

SECONDS = 20.0
"""The time to measure both models, after which what is not known yet is left out."""
NAMED = 4
"""How many kinds of ops are named."""
_ELEMENT_TYPES = re.compile(r" \([^)]*\)")
"""In names of XNNPACK's kernels: layout and types, as in "Convolution (NHWC, QC8)"."""


def speed_change(before: str | os.PathLike[str], mode: str, b: Side) -> SpeedChange:
    """Compare the quantized model ``b`` with the .tflite ``before`` that it was made of, on the inputs of ``b``."""
    paths = [Path(before), b.info.path]
    sizes = [path.stat().st_size for path in paths]
    if b.worker is None or b.fed is None or b.slots is not None or len(b.fed) != len(b.info.inputs):
        return SpeedChange(mode, Speed(sizes[0]), Speed(sizes[1]))
    b.worker.close()  # its memory is free for the runs that are measured
    inputs = [list(map(_real, b.info.inputs, b.fed)), list(b.fed)]
    runtime, until = RUNTIMES[b.worker.runtime], time.monotonic() + SECONDS

    def measured(k: int, ops: bool) -> dict[str, Any]:
        left = until - time.monotonic()
        return profile(runtime, paths[k], inputs[k], left, ops=ops) if left > 0 else {}

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


def _real(info: TensorInfo, value: Any) -> Any:
    """An input of the float model for one of the quantized model."""
    return value if info.quantization is None else dequantize(value, info.quantization).astype("float32")
