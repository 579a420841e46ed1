"""The commands `onnx2tfl`, `tfl2onnx` and `onnxtfl`; they import the public API only, when a command runs."""

from onnxtfl.cli.commands import main, onnx2tfl, tfl2onnx

__all__ = ["main", "onnx2tfl", "tfl2onnx"]
