"""One class per target: TFLite runtimes (``tflite``), ONNX opsets and ONNX Runtime (``onnx``).

A target reads the lowering rules and ``schemas/``, and says which op of its format a neutral node becomes.
"""

from onnxtfl.rewriting.target import Refusal
from onnxtfl.targets.target import Target

__all__ = ["Refusal", "Target"]
