"""What a kernel does, for the cost model."""
