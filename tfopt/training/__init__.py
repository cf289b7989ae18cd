"""What learning from examples takes: the user's module, the data, the loop. Shared by `train` and what fine-tunes."""
