"""Where in two models the first difference arises."""
