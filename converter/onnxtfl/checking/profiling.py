"""Additions to the report about the two models: their files and, if requested, the time of their ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnxtfl.checking.models.side import Side
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.settings import Settings
from onnxtfl.inputs.calibrated import calibrated
from onnxtfl.inputs.description import TensorInfo
from onnxtfl.ir.quantization import dequantize
from onnxtfl.runtimes import RUNTIMES
from onnxtfl.runtimes.profiler import profile
from onnxtfl.runtimes.profiles import OpTime, Profile, SpeedChange
from onnxtfl.runtimes.speed import speed_change


def with_models(report: CheckReport, sides: Sequence[Side], settings: Settings) -> CheckReport:
    """The report with the summaries of both models, and with their profiles on the inputs of the check."""
    models = tuple(side.summary for side in sides)
    profiles = tuple(_profile(side, settings.time_limit) for side in sides) if settings.profile else ()
    return replace(report, models=models, profiles=profiles, speed=_speed(sides[1], settings))


def _speed(b: Side, settings: Settings) -> SpeedChange | None:
    """The effect of quantization on size and time, if the second model was just quantized."""
    known = None if settings.quantized_from is None else calibrated(b.info.path)
    if settings.quantized_from is None or known is None:
        return None
    paths = [settings.quantized_from, b.info.path]
    if b.worker is None or b.fed is None or b.slots is not None or len(b.fed) != len(b.info.inputs):
        return speed_change(known.mode, paths, ((), ()), None)
    b.worker.close()  # its memory is free for the runs that are measured
    inputs = [list(map(_real, b.info.inputs, b.fed)), list(b.fed)]
    return speed_change(known.mode, paths, inputs, RUNTIMES[b.worker.runtime])


def _real(info: TensorInfo, value: Any) -> Any:
    """An input of the float model for one of the quantized model."""
    return value if info.quantization is None else dequantize(value, info.quantization).astype("float32")


def _profile(side: Side, time_limit: float) -> Profile:
    if side.worker is None:
        return Profile(side.info.format, note="not measured: no runtime is installed")
    side.worker.close()  # its memory is free for the run that is measured
    runtime = RUNTIMES[side.worker.runtime]
    name = f"{runtime.name} {runtime.version()}"
    if side.fed is None:
        return Profile(name, note="not measured: the model was not run")
    found = profile(runtime, side.info.path, side.fed, time_limit)
    ops = tuple(OpTime(*entry) for entry in found.pop("ops", ()))
    found.pop("replaced", None)
    return Profile(name, ops, **found)
