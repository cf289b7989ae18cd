"""Set a learning phase that is not an input to inference.

    keras_learning_phase = false

    before    Placeholder(keras_learning_phase) -> Switch, If, …
    after     Const(false) -> Switch, If, …

Such a graph could not run without a value for it. `fold_switches` and `fold_branches` then select the live side. If it
is a PlaceholderWithDefault, `drop_training_nodes` uses its default.

Requires: a scalar bool with one of the usual `NAMES`, which is not an input of a signature.
"""

import numpy as np

from tfopt.graph.law import Maker, WholeGraphLaw, attr
from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report

NAMES = {"keras_learning_phase", "learning_phase", "is_training", "is_train", "training", "phase_train", "train_phase"}


def run(graph: Graph, report: Report) -> int:
    """Replace the placeholders by constants."""
    from tensorflow import bool as boolean

    fired = 0
    for node in graph.of_op("Placeholder"):
        if node.name in graph.fed or attr(node, "dtype") != boolean.as_datatype_enum:
            continue
        if node.name.rpartition("/")[-1] not in NAMES:
            report.refuse("freeze_learning_phase", node.name, "its name is not one of a learning phase")
            continue
        constant = Maker(graph, node, node.controls).constant("inference", np.asarray(False))
        graph.remove(node.name)
        graph.rename(constant.node, node.name)
        report.fire("freeze_learning_phase", node.name)
        fired += 1
    return fired


LAW = WholeGraphLaw(
    run,
    after={"strip_unused": "unused nodes cost every later law time, and count as consumers"},
    before={"fold_constants": "conditions that are computed from the learning phase are constants then"},
)
