"""The trial: a new program runs as XLA compiles it and stitched, and the faster one stays."""
