"""Ops of ai.onnx.preview.training."""
