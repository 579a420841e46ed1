"""What a conversion returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxtfl.checking import CheckReport
    from onnxtfl.ir.record import Record
    from onnxtfl.ir.summary import QuantizationSummary


@dataclass(frozen=True)
class TensorReport:
    """An input or output of the result: name, dtype (``float32``, ``int64``, ...) and shape (sizes and symbols)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class StateReport:
    """A state that is an input and an output of the result, by name; None where the entry point does not read, or
    write, it. ``initial``: the value to feed in the first run, one element where all are equal; None if the file has
    none.
    """

    input: str | None
    output: str | None
    initial: Any


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did.

    ``ops_before``, ``ops_after``: number of nodes by operator, in the source and in the result. ``source_size`` (of
    the model file without external data, None for a model in memory) and ``size``: bytes. ``seconds``: duration of
    the conversion without the check. ``peak_memory``: peak resident bytes of this process, None where the system
    does not report it. ``passes``: (name, seconds, nodes after it) of each pass, in order. ``quantization``: which ops
    of a quantized model compute on integers, which in float and why, which biases got another scale, which tensors
    were requantized; None where nothing is quantized. ``states``: those that became inputs and outputs.
    ``kept_states``: tensors of a .tflite that the next run begins with, None where that was not asked for.
    ``other_signatures``: the entry points of the source that were not converted. ``elements``: the names of the tensors
    that each input and output of sequence or optional type became.
    """

    inputs: tuple[TensorReport, ...]
    outputs: tuple[TensorReport, ...]
    ops_before: Mapping[str, int]
    ops_after: Mapping[str, int]
    source_size: int | None
    size: int
    seconds: float
    peak_memory: int | None
    passes: tuple[tuple[str, float, int], ...] = ()
    quantization: QuantizationSummary | None = None
    states: tuple[StateReport, ...] = ()
    kept_states: tuple[str, ...] | None = None
    other_signatures: tuple[str, ...] = ()
    elements: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Conversion:
    """A converted model: the ``path`` it was written to, or its bytes in ``data``; the other one is None.

    ``report``: sizes, counts and times. ``check``: the comparison of the two models, None without one. ``record``:
    the target tensor of each source tensor, and the origin of each target op (`onnxtfl.ir.record.Record`).
    """

    path: Path | None
    data: bytes | None
    report: ConversionReport
    check: CheckReport | None
    record: Record | None = None


def peak_memory() -> int | None:
    """Return the peak resident bytes of this process, None where the system does not report them."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:")), None)
    except OSError:
        pass
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return None
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024
