"""Train the user's Keras model."""
