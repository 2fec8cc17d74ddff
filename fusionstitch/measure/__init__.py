"""Times on the present GPU: generated kernels, and XLA's compile of the same ops."""
