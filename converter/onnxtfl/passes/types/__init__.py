"""Element types that a target does not compute, held or computed in others."""
