"""Written by its family."""
