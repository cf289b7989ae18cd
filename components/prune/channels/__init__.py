"""Structured pruning: remove whole channels, so that the model becomes a smaller dense one."""
