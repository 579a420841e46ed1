"""Running models, each in a child process: in a runtime, in onnx.reference, or by the neutral ops."""

from onnxtfl.runtimes.adapters import (
    ENGINE,
    GPU,
    LITERT,
    MICRO,
    NEUTRAL,
    ONNXRUNTIME,
    REFERENCE,
    RUNTIMES,
    TFLITE_RUNTIME,
    Runtime,
    is_fixed,
    runtime_for,
)
from onnxtfl.runtimes.process import Run, RunOptions, Worker
from onnxtfl.runtimes.run_errors import RunError
from onnxtfl.runtimes.workers import Workers, fit_together, shortage

__all__ = [
    "ENGINE",
    "GPU",
    "LITERT",
    "MICRO",
    "NEUTRAL",
    "ONNXRUNTIME",
    "REFERENCE",
    "RUNTIMES",
    "TFLITE_RUNTIME",
    "Run",
    "RunError",
    "RunOptions",
    "Runtime",
    "Worker",
    "Workers",
    "fit_together",
    "is_fixed",
    "runtime_for",
    "shortage",
]
