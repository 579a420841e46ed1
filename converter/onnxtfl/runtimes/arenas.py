"""The size of the arena that a model needs in TFLite Micro, by trial: it is more than the memory in use."""

from __future__ import annotations

import itertools
import os

from onnxtfl.runtimes.process import DEFAULT, RunOptions, Worker
from onnxtfl.runtimes.run_errors import RunError

ROUNDED, ARENAS = 256, 8
"""The alignment of TFLite Micro's arena in bytes, and the number of larger arenas that are tried."""
PRECISE = 32
"""The least arena is found to this part of its size."""


def least_arena(worker: Worker, model: str | os.PathLike[str], options: RunOptions = DEFAULT) -> int:
    """The bytes of the smallest arena for ``model``. Raises `RunError`.

    What is in use at the end is less, by what the interpreter needs to plan its memory.
    """
    least = _rounded(worker.arena(model, 0, options))
    sizes = [least, *(least + (ROUNDED << k) for k in range(ARENAS))]
    sizes.append(2 * sizes[-1])
    tried = itertools.takewhile(lambda size: not _fits(worker, model, size, options), sizes[:-1])
    small = max(tried, default=0)
    large = next((size for size in sizes if size > small), sizes[-1])
    while small and large - small > max(ROUNDED, large // PRECISE):
        middle = _rounded((small + large) // 2)
        small, large = (small, middle) if _fits(worker, model, middle, options) else (middle, large)
    return large


def _fits(worker: Worker, model: str | os.PathLike[str], size: int, options: RunOptions) -> bool:
    """Whether ``model`` loads in an arena of ``size`` bytes. If it is too small, the interpreter may crash, or name an
    arbitrary op as the one that it fails to prepare.
    """
    try:
        return worker.arena(model, size, options) <= size
    except RunError as error:
        if error.kind in ("unavailable", "timeout"):
            raise
        return False


def _rounded(size: int) -> int:
    """`size` as a multiple of `ROUNDED`, not smaller."""
    return -(-size // ROUNDED) * ROUNDED
