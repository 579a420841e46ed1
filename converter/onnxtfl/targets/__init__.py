"""One class per target: TFLite runtimes (``tflite``), ONNX opsets and ONNX Runtime (``onnx``).

A target reads the lowering rules and ``schemas/``, and chooses the op of its format for a neutral node.
"""

from onnxtfl.rewriting.target import Refusal
from onnxtfl.targets.target import Target

__all__ = ["Refusal", "Target"]
