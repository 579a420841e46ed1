"""Control flow, state, and ops that nothing computes."""
