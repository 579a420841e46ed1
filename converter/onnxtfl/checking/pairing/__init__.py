"""Which inputs, outputs and inner tensors of two models correspond."""
