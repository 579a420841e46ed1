"""Op codes of TFLite's format that are no ops."""

from __future__ import annotations

from onnxtfl.rewriting.registry import refuse_tfl

refuse_tfl(
    *("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"),
    why="it is a placeholder in the file format or the runtime, not an op with a kernel",
    hint="export the .tflite again: the op code is damaged",
)
