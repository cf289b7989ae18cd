"""What laws recognize in a graph: patterns, families of operations, shapes, loops, conditions."""
