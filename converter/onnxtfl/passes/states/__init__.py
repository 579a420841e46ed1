"""State between runs: kept by the runtime, or inputs and outputs."""
