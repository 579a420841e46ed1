"""Measures what the CPU kernels of TFLite runtimes really compute; see tools/probe_kernels.py."""
