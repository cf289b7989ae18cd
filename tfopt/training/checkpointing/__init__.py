"""Checkpoints of a training, in local folders and object stores."""
