"""How models lie where they are served from: what `push_model` writes and `validate_serving` tries."""
