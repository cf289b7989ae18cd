"""Models that XLA compiles when they are first called, saved so."""
