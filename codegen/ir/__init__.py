"""A kernel as statements: between the schedule and the text."""
