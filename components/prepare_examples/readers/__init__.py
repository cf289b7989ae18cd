"""Readers of data files, one module for each format."""
