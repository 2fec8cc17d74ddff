"""HLO bytes in, HLO bytes and a plan out."""
