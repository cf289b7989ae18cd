"""Mixes of precisions: the search for a kind of each layer, for size or latency, and measured sensitivities."""
