"""ONNX files: `read` and `write`."""

from onnxtfl.formats.onnx.reader import read

__all__ = ["read"]
