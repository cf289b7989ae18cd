"""SavedModels that XLA compiles at the first call."""
