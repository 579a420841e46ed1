"""Distances of arrays: errors, by slice and by channel, and rounding noise; independent of models."""
