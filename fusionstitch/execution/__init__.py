"""How a jitted function reaches the compiler and comes back."""
