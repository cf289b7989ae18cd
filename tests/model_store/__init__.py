"""Model store."""
