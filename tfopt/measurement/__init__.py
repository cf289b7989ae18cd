"""Parity of outputs, ratios with confidence intervals, goals, and the fingerprint of the machine.

May import `tfopt.runtimes`, `tfopt.model_store`, `tfopt.data` and what is below them.
"""
