"""Sixty programs in the forms people write, kept out of everything that is fitted."""
