"""The quantization settings in the metadata of a .tflite, and the resulting tolerance and inputs of its check.

The property is a JSON object: ``{"mode": "int8", "inputs": {"x": {"low", "high", "mean", "std"}}}``. The tolerance of a
mode is in this module, not in the file, so that no file chooses its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from onnxtfl.formats import files
from onnxtfl.inputs.spread import Spread
from onnxtfl.ir.metadata import QUANTIZED, as_text

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
        """Read the text of `to_json`; None for other text, and for a mode without a tolerance."""
        try:
            content = json.loads(text)
            mode, inputs = content["mode"], {name: Spread(**entry) for name, entry in content["inputs"].items()}
            valid = isinstance(mode, str) and mode in LEVELS and all(spread.is_valid for spread in inputs.values())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return cls(mode, inputs) if valid else None


def calibrated(path: Any) -> Calibrated | None:
    """The settings by which onnxtfl quantized the model at `path`; None for other models."""
    if files.sniff(path) != "tflite":
        return None
    content = files.read(path).metadata.properties.get(QUANTIZED)
    return None if content is None else Calibrated.from_json(as_text(content))
