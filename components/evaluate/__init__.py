"""Metrics of each model and their differences to the baseline, on the same records."""
