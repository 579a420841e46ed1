"""Rewrites of loops: loop-carried and captured values, invariant code."""
