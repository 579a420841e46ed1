"""What a check adds to its report about the two models: their files, and, where asked for, the time of their ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxtfl.checking.calibrated import calibrated
from onnxtfl.checking.models.side import Side
from onnxtfl.checking.profile import OpTime, Profile, SpeedChange
from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.settings import Settings
from onnxtfl.checking.speed import speed_change
from onnxtfl.runtimes import RUNTIMES
from onnxtfl.runtimes.profiler import profile


def with_models(report: CheckReport, sides: Sequence[Side], settings: Settings) -> CheckReport:
    """The report with the summaries of both models, and with their profiles on the inputs of the check."""
    models = tuple(side.summary for side in sides if side.summary is not None)
    profiles = tuple(_profile(side, settings.time_limit) for side in sides) if settings.profile else ()
    return replace(report, models=models, profiles=profiles, speed=_speed(sides[1], settings))


def _speed(b: Side, settings: Settings) -> SpeedChange | None:
    """What quantizing changed, where the second model was quantized just now."""
    known = None if settings.quantized_from is None else calibrated(b.info.path)
    if settings.quantized_from is None or known is None:
        return None
    return speed_change(settings.quantized_from, known.mode, b)


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
    return Profile(name, ops, **found)
