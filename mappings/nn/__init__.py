"""Layers of neural networks: convolutions, pools, norms, activations, resizing, detection."""
