"""Measure the costs of forms, and fit the rows in ``schemas/`` (targets/work.py defines the amounts of work)."""
