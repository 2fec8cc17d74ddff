"""The graph floor: HLO modules in, typed graphs, HLO modules out."""
