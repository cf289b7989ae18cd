"""The ``tfopt`` command: parse arguments, run components and pipelines, print results."""
