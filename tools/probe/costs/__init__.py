"""Measures the costs of forms, and fits the rows in ``schemas/`` (targets/work.py defines the amounts of work)."""
