"""Optimize the graph of a SavedModel, pass by pass, each one compared with its parent."""

from tfopt.components.optimize_graph.component import optimize_graph

__all__ = ["optimize_graph"]
