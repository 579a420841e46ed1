"""Measure which forms of ops the CPU kernels of TFLite runtimes accept and compute; see tools/probe_kernels.py."""
