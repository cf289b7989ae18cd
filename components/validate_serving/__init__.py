"""Load a model as its server will, send requests to it, and check the responses."""
