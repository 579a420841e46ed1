"""Replacement of element types without kernels: computed in, or stored as, other types."""
