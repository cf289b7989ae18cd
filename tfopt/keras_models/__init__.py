"""Keras 2 and Keras 3 models: load, save, and inspect layers and weights.

May import `tfopt.artifacts` and `tfopt.errors`.
"""
