"""ONNX files: `read` and `write`."""

from onnxtfl.formats.onnx.reader import read
from onnxtfl.formats.onnx.writer import write

__all__ = ["read", "write"]
