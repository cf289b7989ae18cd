"""Remove checks for NaN and infinity.

    CheckNumerics(x) = x

    before    x -> CheckNumerics -> Relu
    after     x -> Relu

If the check holds, the outputs are the same. With `drop_assertions` this removes the checks of a served model: where
the check stopped the graph, the outputs are now NaN.

Requires: the conditions of `drop_training_nodes`.
"""

from tfopt.graph.law import LocalLaw, op, return_input
from tfopt.graph.laws.drop_training_nodes import when

LAW = LocalLaw(
    (op(("CheckNumerics", "CheckNumericsV2"), "x"),),
    when,
    return_input,
    requires=("needed control edges",),
    removes_checks=True,
    before={"cancel_transposes": "laws that match neighbours do not match with a check in between"},
)
