"""How far values are from other values: errors, noise, distances; tolerances."""
