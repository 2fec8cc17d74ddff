"""Programs without loops whose sizes, types, axes and layouts are drawn from a seed."""
