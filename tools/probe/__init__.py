"""Measures what the CPU kernels of TFLite runtimes accept and compute; see tools/probe_kernels.py."""
