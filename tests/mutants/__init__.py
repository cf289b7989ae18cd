"""Mutants: faults that are applied to a copy of the repository one after the other, to see that tests find them."""
