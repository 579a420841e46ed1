"""Shared by the test suites: crash-proof worker processes, running models, comparing outputs."""
