"""The components: one folder each, a typed function in ``component.py`` and the work beside it."""
