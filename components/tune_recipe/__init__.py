"""Search for the optimization steps, and their parameters, that are best for a model within a budget."""
