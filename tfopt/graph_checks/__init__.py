"""Checks that a rewritten graph computes the same: on examples, random inputs and special values."""
