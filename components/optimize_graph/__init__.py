"""Optimize the graph of a SavedModel, pass by pass, each one compared with its parent."""
