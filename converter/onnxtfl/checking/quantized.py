"""Settings for the check of a quantized model against its float source, from its metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from onnxtfl.checking.report import CheckReport, with_notes
from onnxtfl.checking.settings import Settings
from onnxtfl.inputs.calibrated import LEVELS, calibrated

WITHIN = 16
"""The allowed difference of outputs between a quantized and the float model, in steps."""

SIMILAR = 0.5
"""The lowest cosine between outputs of a quantized source and of its float32 copy, if the copy is the reference."""


def for_quantized(settings: Settings, a: Any, b: Any) -> Settings:
    """The settings for the model at ``b``, and its float source at ``a``.

    If both or only the first are quantized, the settings are unchanged: such models compute the same values.
    """
    found = calibrated(b)
    if found is None or calibrated(a) is not None:
        return settings
    steps = settings.max_steps if settings.max_steps != Settings.max_steps else WITHIN  # the user's value has priority
    return replace(settings, levels=LEVELS[found.mode], max_steps=steps, spreads=found.inputs)


def compared_by_cosine(settings: Settings) -> Settings:
    """The settings for the outputs of a float .onnx model and a quantized one as vectors."""
    known = replace(settings, metrics=("cosine",), in_float32=False, runtime=None, quantized_from=None, tensors=())
    return replace(known, per_layer=False, profile=False, precision=None)


def least_cosine(report: CheckReport) -> float:
    """The lowest cosine between outputs of both models; 0 if there is none, or if they did not run."""
    found = [output.metrics["cosine"] for output in report.outputs if "cosine" in output.metrics]
    return min(found, default=0.0)


def with_advice(report: CheckReport, settings: Settings) -> CheckReport:
    """The report of a check on generated inputs; if it failed, with the advice to use inputs like those of the
    calibration.
    """
    if settings.levels is None or report.status != "failed":
        return report
    note = "a quantized model approximates its source only on inputs like those of its calibration: use such (`data`)"
    return with_notes(report, note)
