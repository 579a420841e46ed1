"""Inputs and outputs: sizes, names, and cutting a part out of a model."""
