"""Loops as users write them: scans, fori and while loops, each measured as a whole."""
