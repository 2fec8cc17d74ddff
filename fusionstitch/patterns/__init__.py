"""Pattern generation: substitution (Algorithm 1), exploratory (Algorithm 2), packing."""
