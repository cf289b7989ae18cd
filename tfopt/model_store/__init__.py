"""Data stored next to the pushed versions: the run history, and the state for warm starts."""
