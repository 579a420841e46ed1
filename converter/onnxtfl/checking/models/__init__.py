"""The two models of a check: descriptions, facts, states, parts and rewritten copies, traces of inner values."""
