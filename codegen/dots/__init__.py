"""Products: tiles, and chains of them that stream their rows."""
