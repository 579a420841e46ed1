"""The place of the first difference between two models."""
