"""State between invocations: kept by the runtime, or as inputs and outputs."""
