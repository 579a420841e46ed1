"""What is known of the inputs of a model, and values for them: used by calibration and by the check."""
