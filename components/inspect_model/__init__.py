"""Inspection of a model: operations, costs, and obstacles to optimizations."""
