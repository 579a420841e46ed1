"""The inputs of a check: generated, natural, or the user's; sizes for dynamic dimensions."""
