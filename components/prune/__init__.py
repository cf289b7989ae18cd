"""Zero weights, or remove channels."""
