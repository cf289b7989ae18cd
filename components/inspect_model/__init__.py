"""What a model consists of."""
