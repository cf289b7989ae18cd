"""Component declarations: ports, parameters, and the lookup of components by name.

May import `tfopt.artifacts` and what is below it.
"""
