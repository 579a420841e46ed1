"""Files and time per op of the two models of a check, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from onnxtfl.tables import byte_count

SLOWER = 1.1
"""From this factor on, a quantized model is called slower: measurements vary by less."""


@dataclass(frozen=True)
class ModelSummary:
    """One of the two models: its file, format ("onnx" or "tflite"), bytes with external data, and nodes by operator."""

    path: str
    format: str
    size: int
    ops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OpTime:
    """The milliseconds of one op, or one kernel of a delegate, in one run."""

    name: str
    op: str
    milliseconds: float


@dataclass(frozen=True)
class Profile:
    """Time per op of one runtime, measured in separate runs.

    ``ops``: in the order in which they run; () if the runtime has no times, and ``note`` says why. ``milliseconds``:
    those of one run without measuring ops, None if not measured. ``delegate``: the delegate that runs a part of the ops
    of a .tflite, "" if there is none; ``delegated`` of the ``total`` ops run in it, in ``partitions`` groups.
    """

    runtime: str
    ops: tuple[OpTime, ...] = ()
    milliseconds: float | None = None
    note: str = ""
    delegate: str = ""
    delegated: int = 0
    total: int = 0
    partitions: int = 0


@dataclass(frozen=True)
class Speed:
    """The bytes of a .tflite, and the milliseconds of one run on one thread; None if it was not measured.

    ``delegate`` computes ``delegated`` of its ``total`` ops.
    """

    size: int
    milliseconds: float | None = None
    delegate: str = ""
    delegated: int = 0
    total: int = 0

    @classmethod
    def of(cls, size: int, measured: Mapping[str, Any]) -> Speed:
        """What `onnxtfl.runtimes.profiler.profile` measured."""
        known = {field.name for field in fields(cls)}
        return cls(size, **{key: value for key, value in measured.items() if key in known})

    def __str__(self) -> str:
        return byte_count(self.size) + ("" if self.milliseconds is None else f", {self.milliseconds:.3g} ms")


@dataclass(frozen=True)
class SpeedChange:
    """A .tflite ``before`` and ``after`` it was quantized in a ``mode``.

    ``added``: the kinds of ops that became slower, with the additional milliseconds, the largest first; () for a model
    that is not slower, or whose ops were not measured.
    """

    mode: str
    before: Speed
    after: Speed
    added: tuple[OpTime, ...] = ()

    @property
    def factor(self) -> float | None:
        """How many times as long the quantized model runs; None if that was not measured."""
        if not self.before.milliseconds or self.after.milliseconds is None:
            return None
        return self.after.milliseconds / self.before.milliseconds

    @property
    def is_slower(self) -> bool:
        """Whether the quantized model is slower beyond measurement noise."""
        return self.factor is not None and self.factor >= SLOWER

    def __str__(self) -> str:
        said = f"float {self.before}; {self.mode} {self.after}"
        if self.factor is None or not self.is_slower:
            return said + (f", {1 / self.factor:.2g} times as fast" if self.factor and self.factor < 1 else "")
        added = ", ".join(f"{op.op} +{op.milliseconds:.3g} ms" for op in self.added)
        why = "; ".join(part for part in (added, self._delegated) if part)
        return f"{said}, {self.factor:.2g} times slower" + (f": {why}" if why else "")

    @property
    def _delegated(self) -> str:
        """The number of ops that a delegate computes in both models, as text; "" if neither has one."""
        name = self.after.delegate or self.before.delegate
        counts = [f"{speed.delegated} of {speed.total}" for speed in (self.after, self.before)]
        return name and f"{name} computes {counts[0]} ops, {counts[1]} of the float model"
