"""A check for NaN and infinity equals its input where it would have held.

    CheckNumerics(x) = x

    before    x -> CheckNumerics -> Relu
    after     x -> Relu

With `drop_assertions` the end of checks in a served model: where this one stopped the graph, NaN is answered now.
Needs: what `drop_training_nodes` needs.
"""

from tfopt.graph.pattern import op
from tfopt.graph.rewrite_rule import Rule
from tfopt.graph.rewrites.drop_training_nodes import rewrite, when

LAW = Rule((op(("CheckNumerics", "CheckNumericsV2"), "x"),), when, rewrite, requires=("needed control edges",))
