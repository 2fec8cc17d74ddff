"""Index arithmetic: where ops read, and where vectors begin."""
