"""Times on the present GPU: generated kernels, and what XLA makes of the same ops."""
