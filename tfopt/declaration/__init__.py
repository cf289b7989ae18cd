"""Component declarations: ports, parameters, and the lookup of components by name."""
