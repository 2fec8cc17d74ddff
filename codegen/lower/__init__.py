"""A scheduled kernel as text."""
