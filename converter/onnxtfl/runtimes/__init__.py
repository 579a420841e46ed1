"""Running models: ONNX Runtime, LiteRT and tflite-runtime, each in a child process with a time limit."""

from onnxtfl.runtimes.adapters import LITERT, ONNXRUNTIME, RUNTIMES, TFLITE_RUNTIME, Runtime, runtime_for
from onnxtfl.runtimes.process import Run, RunError, RunOptions, Worker
from onnxtfl.runtimes.workers import Workers, fit_together

__all__ = [
    "LITERT",
    "ONNXRUNTIME",
    "RUNTIMES",
    "TFLITE_RUNTIME",
    "Run",
    "RunError",
    "RunOptions",
    "Runtime",
    "Worker",
    "Workers",
    "fit_together",
    "runtime_for",
]
