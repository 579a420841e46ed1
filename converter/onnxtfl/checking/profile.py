"""What a report says about the two models of a check beyond their outputs: their files, and time per op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelSummary:
    """One of the two models: its file, format ("onnx" or "tflite"), bytes with external data, and nodes by operator."""

    path: str
    format: str
    size: int
    ops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OpTime:
    """What a runtime measured for one op, or for one kernel of a delegate: milliseconds of one run."""

    name: str
    op: str
    milliseconds: float


@dataclass(frozen=True)
class Profile:
    """Time per op of one runtime, measured in runs of its own.

    ``ops``: in the order in which they run; () where the runtime offers no times, and ``note`` says why.
    ``milliseconds``: one run without measuring ops, None where it was not measured. ``delegate``: what runs a part of
    the ops of a .tflite, "" where there is none; ``delegated`` of its ``total`` ops run there.
    """

    runtime: str
    ops: tuple[OpTime, ...] = ()
    milliseconds: float | None = None
    note: str = ""
    delegate: str = ""
    delegated: int = 0
    total: int = 0
