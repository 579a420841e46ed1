"""Runs the code blocks of README.md and docs/, and checks that the site is complete."""
