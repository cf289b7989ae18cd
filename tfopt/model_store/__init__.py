"""Data stored next to the pushed versions: the run history, and the state for warm starts.

May import `tfopt.declaration` and what is below it.
"""
