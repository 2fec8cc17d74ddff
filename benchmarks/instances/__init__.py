"""Instances of kinds of ops: what a kernel of each takes."""
