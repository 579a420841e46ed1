"""Ops of domains beside ONNX's own: com.microsoft, ai.onnx.ml, training, MediaPipe."""
