"""TensorFlow graphs outside a session: read from a SavedModel, rewritten, and written as a SavedModel again."""
