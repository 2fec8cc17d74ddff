"""The guard: what the model cannot prove is measured once, beside XLA's own kernels."""
