"""Load a model as its server will, and ask it."""
