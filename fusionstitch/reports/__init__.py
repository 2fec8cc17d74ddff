"""What stitching did and what it is worth, for people and programs."""
