"""Latency, throughput, memory and size of models, measured against a baseline."""
