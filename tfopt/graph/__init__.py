"""TensorFlow graphs: read from a SavedModel, rewrite, and write back.

May import `tfopt.runtimes`, `tfopt.measurement` and what is below them.
"""
