"""Arithmetic, logic, reductions, contractions and random numbers."""
