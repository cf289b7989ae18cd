"""Batch norms folded into the layers before them."""
