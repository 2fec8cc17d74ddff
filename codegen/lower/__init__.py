"""A scheduled kernel as statements."""
