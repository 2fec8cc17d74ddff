"""Measurements on a GPU: the examples against XLA and op by op, and the launcher alone."""
