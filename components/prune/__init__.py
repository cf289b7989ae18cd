"""Set weights to zero, or remove channels, and fine-tune the others."""
