"""Running models: ONNX Runtime, LiteRT and tflite-runtime, each in a child process with a time limit."""

from onnxtfl.runtimes.adapters import LITERT, ONNXRUNTIME, RUNTIMES, TFLITE_RUNTIME, Runtime, runtime_for
from onnxtfl.runtimes.process import RunError, RunOptions, Worker

__all__ = [
    "LITERT",
    "ONNXRUNTIME",
    "RUNTIMES",
    "TFLITE_RUNTIME",
    "RunError",
    "RunOptions",
    "Runtime",
    "Worker",
    "runtime_for",
]
