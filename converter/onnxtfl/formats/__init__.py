"""Readers and writers of model files."""

TEXT_HEADS = (b"graph ", b"#")
"""How a neutral graph as text begins; the second one is a comment."""
