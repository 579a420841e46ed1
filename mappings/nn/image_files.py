"""ImageDecoder is refused: TFLite has no kernel that decodes image files."""

from __future__ import annotations

from onnxtfl.rewriting.registry import refuse_onnx

refuse_onnx(
    "ImageDecoder",
    why="TFLite has no kernel that decodes image files",
    hint="decode the image before the model and make the pixels its input (`inputs`)",
)
