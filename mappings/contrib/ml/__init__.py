"""Ops of ai.onnx.ml."""
