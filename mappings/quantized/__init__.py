"""Quantization, and products of integers."""
