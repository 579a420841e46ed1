"""What loops carry and compute in each round."""
