"""The cost floor: device profiles, bandwidth curves, traffic, occupancy, scores."""
