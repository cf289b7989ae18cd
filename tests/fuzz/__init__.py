"""Damaged and hostile inputs of every format, run through the command line in forks: see ``python -m tests.fuzz``."""
