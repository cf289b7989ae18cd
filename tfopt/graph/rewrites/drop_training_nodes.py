"""Nodes that matter only in training, or only name a tensor, equal their input at inference.

    Identity(x) = StopGradient(x) = PreventGradient(x) = Snapshot(x) = PlaceholderWithDefault(x) = x

    before    x -> Identity -> Relu
    after     x -> Relu

Dropout is an Identity by the time a model is exported. Checks are another law, `drop_numeric_checks`, as they may stop
the graph. Needs: not an output itself, no control edge into it (its readers would no longer wait), and not the output
of a Switch, whose Identity stands for the branch.
"""

from tfopt.graph.mutable_graph import Tensor
from tfopt.graph.op_registry import FRAMES
from tfopt.graph.pattern import op
from tfopt.graph.rewrite_rule import Maker, Match, Rule

PATTERN = op(("Identity", "StopGradient", "PreventGradient", "Snapshot", "PlaceholderWithDefault"), "x")


def when(match: Match) -> str | None:
    """Refuse what a control edge or a branch depends on."""
    node, graph = match.node(), match.graph
    if node.controls:
        return f"the {node.op} carries a control edge"
    source = graph.nodes[match.tensor("x").node]
    if source.op in FRAMES:
        return f"the {node.op} reads the control flow operation {source.op}"
    if any(reader.op in FRAMES for reader in graph.readers(node.name)):
        return f"control flow reads the {node.op}"
    return None


def rewrite(match: Match, make: Maker) -> Tensor:
    """What it reads."""
    return match.tensor("x")


LAW = Rule((PATTERN,), when, rewrite, requires=("needed control edges",), ensures=("direct edges",))
