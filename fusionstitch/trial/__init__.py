"""The trial: a new program is run as XLA compiles it and stitched, and the faster one stays."""
