"""Ops that move, select and create elements."""
