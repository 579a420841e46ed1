"""The tensors inside of a model, as its runtime computes them, and the corresponding tensors of two models."""
