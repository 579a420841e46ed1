"""How a .tflite was quantized, as its metadata says, and the tolerance and the inputs of its check that follow.

The property is a JSON object: ``{"mode": "int8", "inputs": {"x": {"low", "high", "mean", "std"}}}``. The tolerance of a
mode is in this module, not in the file, so that no file chooses its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from onnxtfl.checking.report import CheckReport
from onnxtfl.checking.settings import Settings
from onnxtfl.formats import files
from onnxtfl.inputs.spread import Spread
from onnxtfl.ir.metadata import QUANTIZED, as_text

WITHIN = 16
"""How many steps an output of a quantized model may differ from the float model's."""
LEVELS: Mapping[str, int] = {"dynamic": 127, "int8": 127, "int16x8": 127, "float16": 1024}
"""By mode: a step is at least the largest value of an output divided by this; the weights of int16x8 are int8 too."""


@dataclass(frozen=True)
class Calibrated:
    """The ``mode`` in which a model was quantized, and the spread of its calibration data by input (``inputs``)."""

    mode: str
    inputs: Mapping[str, Spread] = field(default_factory=dict)

    def to_json(self) -> str:
        """The property of the file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Calibrated | None:
        """What `to_json` wrote; None for other text, and for a mode without a tolerance."""
        try:
            content = json.loads(text)
            mode, inputs = content["mode"], {name: Spread(**entry) for name, entry in content["inputs"].items()}
            valid = isinstance(mode, str) and mode in LEVELS and all(spread.is_valid for spread in inputs.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return cls(mode, inputs) if valid else None

    def applied(self, settings: Settings) -> Settings:
        """The settings of the check against the float model; steps that the user gives take precedence."""
        steps = settings.max_steps if settings.max_steps != Settings.max_steps else WITHIN
        return replace(settings, levels=LEVELS[self.mode], max_steps=steps, spreads=self.inputs)


def calibrated(path: Any) -> Calibrated | None:
    """How the model at `path` was quantized; None for one that `onnxtfl` did not quantize."""
    if files.sniff(path) != "tflite":
        return None
    content = files.read(path).metadata.properties.get(QUANTIZED)
    return None if content is None else Calibrated.from_json(as_text(content))


def for_quantized(settings: Settings, a: Any, b: Any) -> Settings:
    """The settings for the model at ``b``, and its float source at ``a``.

    Where both or only the first were quantized, the usual ones: such models compute the same.
    """
    found = calibrated(b)
    return settings if found is None or calibrated(a) is not None else found.applied(settings)


def with_advice(report: CheckReport, settings: Settings) -> CheckReport:
    """The report of a check on generated inputs, which may be unlike those of the calibration where it failed."""
    if settings.levels is None or report.status != "failed":
        return report
    note = "a quantized model is near its source only on inputs like those of its calibration: compare on some (`data`)"
    return replace(report, notes=(*report.notes, note))
