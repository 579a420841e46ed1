"""The inputs of a check: generated, natural, the user's; sizes for open dimensions."""
