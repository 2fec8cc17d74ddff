"""From a lowered kernel to one that can be verified and printed."""
