"""Region to region: ops in terms of others, and cheaper ones."""
