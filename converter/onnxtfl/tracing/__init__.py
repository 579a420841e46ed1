"""The tensors inside of a model, as its runtime computes them, and which of two models correspond."""
