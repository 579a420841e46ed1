"""What a target takes: TFLite runtimes (``tflite``), ONNX opsets and ONNX Runtime (``onnxruntime``)."""
