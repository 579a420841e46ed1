"""Domains that the core does not need."""
