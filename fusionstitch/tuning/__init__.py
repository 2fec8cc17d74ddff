"""The offline autotuner: the search, its results, and the reports."""
