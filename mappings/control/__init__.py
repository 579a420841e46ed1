"""Control flow, tables, custom ops, and ops without any kernel."""
