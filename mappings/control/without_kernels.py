"""Ops of TFLite's format without a kernel in any runtime, so that their meaning is undefined."""

from __future__ import annotations

from onnxtfl.rewriting.registry import refuse_tfl

_STABLEHLO = ("CUSTOM_CALL",)
refuse_tfl(
    *(f"STABLEHLO_{name}" for name in _STABLEHLO),
    why="no TFLite runtime has a kernel for it",
    hint="export the .tflite again with TFLite's ops, without the converter's option that keeps StableHLO ops",
)
refuse_tfl(
    *("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"),
    why="it is a placeholder in the file format or the runtime, not an op with a kernel",
    hint="export the .tflite again: the op code is damaged",
)
