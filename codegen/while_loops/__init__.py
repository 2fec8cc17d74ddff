"""Loop scope: a whole `while` in one kernel."""
