"""Readers and writers of model files."""

TEXT_HEADS = (b"graph ", b"#")
"""The first bytes of a neutral graph as text; the second ones are those of a comment."""
