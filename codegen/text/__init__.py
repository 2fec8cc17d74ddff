"""C: types, expressions, and the writer of statements."""
