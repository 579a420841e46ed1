"""What accepts or rejects a difference; a module each."""
