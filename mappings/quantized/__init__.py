"""Quantization and integer matrix products."""
