"""The contents of the JSON files that components write, as frozen dataclasses."""
