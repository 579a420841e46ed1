"""Ops of domains other than ONNX's default one: com.microsoft, com.microsoft.nchwc, ai.onnx.ml, training, MediaPipe."""
