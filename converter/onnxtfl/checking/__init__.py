"""Compare two models, of either format, on the same inputs: `session.check_models`."""
