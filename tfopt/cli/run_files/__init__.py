"""Run files: pipeline, values and options of a command in YAML."""
