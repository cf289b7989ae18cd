"""Remove nodes that have an effect in training only, or only name a tensor.

    Identity(x) = StopGradient(x) = PreventGradient(x) = Snapshot(x) = PlaceholderWithDefault(x) = x

    before    x -> Identity -> Relu
    after     x -> Relu

A dropout is exported as an Identity. Numeric checks have a law of their own, `drop_numeric_checks`, because they may
stop the graph.

Requires: it is not an output itself, has no control edge into it (its readers would no longer wait), and does not read
a Switch, whose Identity represents the branch.
"""

from tfopt.graph.law import LocalLaw, Match, op, return_input
from tfopt.graph.op_registry import FRAMES

PATTERN = op(("Identity", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault"), "x")


def when(match: Match) -> str | None:
    node, graph = match.node(), match.graph
    if node.controls:
        return f"the {node.op} carries a control edge"
    source = graph.nodes[match.tensor("x").node]
    if source.op in FRAMES:
        return f"the {node.op} reads the control flow operation {source.op}"
    if any(reader.op in FRAMES for reader in graph.readers(node.name)):
        return f"control flow reads the {node.op}"
    return None


LAW = LocalLaw(
    (PATTERN,),
    when,
    return_input,
    requires=("needed control edges",),
    ensures=("direct edges",),
)
