"""ImageDecoder, which is refused: TFLite has no kernel that decodes image files."""

from __future__ import annotations

from onnxtfl.rules import *

refuse_onnx(
    "ImageDecoder",
    why="TFLite has no kernel that decodes image files",
    hint="decode the image before the model, whose input is then the pixels (`inputs`)",
)
