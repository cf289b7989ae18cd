"""Metrics of records, their sums over parts of the data, and estimates with intervals."""
