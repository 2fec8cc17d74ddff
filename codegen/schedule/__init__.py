"""Which threads do what: extents, teams, clusters, templates."""
