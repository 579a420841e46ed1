"""Ops of TFLite's format that have no kernel in any runtime, so that their meaning is not defined."""

from __future__ import annotations

from onnxtfl.rewriting.registry import refuse_tfl

_STABLEHLO = (
    *("ABS", "BROADCAST_IN_DIM", "CBRT", "CLAMP", "COMPARE", "CONCATENATE", "CONVERT", "CONVOLUTION", "COSINE"),
    *("CUSTOM_CALL", "DIVIDE", "DOT_GENERAL", "DYNAMIC_SLICE", "DYNAMIC_UPDATE_SLICE", "EXPONENTIAL", "FLOOR", "IOTA"),
    *("LOG", "LOGISTIC", "NEGATE", "OR", "POWER", "REDUCE", "REMAINDER", "RESHAPE", "RSQRT", "SELECT", "SLICE", "SORT"),
    *("SUBTRACT", "TANH", "TRANSPOSE"),
)
refuse_tfl(
    *(f"STABLEHLO_{name}" for name in _STABLEHLO),
    why="no TFLite runtime has a kernel for it",
    hint="make the .tflite again with TFLite's own ops, without the converter's option that keeps StableHLO's",
)
refuse_tfl(
    "CONCAT_EMBEDDINGS",
    why="no TFLite runtime has a kernel for it",
    hint="make the .tflite again with EMBEDDING_LOOKUP, and CONCATENATION of what it returns",
)
refuse_tfl(
    *("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"),
    why="it marks a place in a file, or in a runtime's memory, and is no op with a kernel",
    hint="make the .tflite again: the code of the op is damaged",
)
