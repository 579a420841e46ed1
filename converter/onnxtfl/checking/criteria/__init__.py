"""The criteria that accept or reject a difference, one module for each."""
