"""Measures what forms cost, and fits the rows that ``schemas/`` keep (targets/work.py says what they are made of)."""
