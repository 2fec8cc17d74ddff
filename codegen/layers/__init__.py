"""Layers of rows: chains of products whose rows stay with a warp."""
