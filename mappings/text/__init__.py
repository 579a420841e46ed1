"""Strings and hashes."""
