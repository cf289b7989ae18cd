"""Quantization-aware training: a model that learns to live with 8-bit weights and activations."""
