"""The commands `onnx2tfl`, `tfl2onnx` and `onnxtfl`; they know the public API only, and load it when it is used."""

from onnxtfl.cli.commands import main, onnx2tfl, tfl2onnx

__all__ = ["main", "onnx2tfl", "tfl2onnx"]
