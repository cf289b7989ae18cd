"""Conversion of models to other formats, and the check of the result against the original.

May import `tfopt.measurement`, `tfopt.runtimes`, `tfopt.keras_models`, `tfopt.data` and what is below them.
"""
