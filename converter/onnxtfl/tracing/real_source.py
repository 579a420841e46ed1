"""A quantized ONNX model in real arithmetic: the source for a check of results whose target has no integer kernels."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from onnxtfl.errors import OnnxtflError
from onnxtfl.formats import files
from onnxtfl.ir import ops
from onnxtfl.ir.quantized import touches_quantized
from onnxtfl.options import Options
from onnxtfl.pipeline import lifted_where_possible, tflite_to_onnx
from onnxtfl.tracing.parts import temporary_directory


def real_source(source: Path, stack: ExitStack) -> Path | None:
    """A copy of `source` with float32 in place of quantized tensors, which exists while `stack` is open.

    None for a model that quantizes nothing, for a .tflite, and if the copy cannot be written.
    """
    if files.sniff(source) != "onnx":
        return None
    graph = lifted_where_possible(files.read(source))
    quantizing = (ops.QuantizeLinear, ops.DequantizeLinear)
    if not any(node.op in quantizing or touches_quantized(node) for node in graph.walk()):
        return None
    path = temporary_directory(stack) / "real.onnx"
    try:
        with path.open("w+b") as out:
            tflite_to_onnx(source, out, Options(quantized="float"))
    except OnnxtflError:
        return None
    return path
