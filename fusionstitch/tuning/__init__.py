"""The offline autotuner: results, the search for them, and the reports."""
