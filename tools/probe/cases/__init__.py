"""The cases, one module a family of ops."""
