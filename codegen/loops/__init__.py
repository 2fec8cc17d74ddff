"""What loops a region is: stages, their axes, groups of them, nests, phases."""
