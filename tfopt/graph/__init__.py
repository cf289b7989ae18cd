"""Optimizer of TensorFlow graphs: read a SavedModel as a frozen graph, rewrite it with laws, write it back.

May import `tfopt.runtimes`, `tfopt.measurement` and what is below them.
"""
