"""Facts about the inputs of a model, and values for them, for calibration and for the check."""
