"""Arithmetic, logic, reductions, products and random numbers."""
