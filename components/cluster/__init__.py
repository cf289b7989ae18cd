"""Cluster weights: each kernel has a few distinct values, which fine-tuning preserves."""
