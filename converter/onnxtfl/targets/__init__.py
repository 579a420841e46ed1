"""What a target takes: TFLite runtimes (``tflite``), ONNX opsets and ONNX Runtime (``onnxruntime``)."""

from onnxtfl.targets.refusal import Refusal

__all__ = ["Refusal"]
