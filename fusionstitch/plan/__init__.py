"""Choosing patterns: scores, the integer program with its cycle cuts, the independent check."""
