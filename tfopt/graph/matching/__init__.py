"""Match parts of a graph for laws: patterns, families of operations, shapes, loops, conditions."""
