"""Settings of the process that serves a model, as part of the model."""
