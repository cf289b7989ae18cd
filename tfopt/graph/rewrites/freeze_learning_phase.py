"""A switch between training and inference that nobody sets stands at inference.

    keras_learning_phase = false

    before    Placeholder(keras_learning_phase) -> Switch, If, …
    after     Const(false) -> Switch, If, …

Such a graph could not run at all without being told. `fold_switches` and `fold_branches` then take the live side. Where
it is a PlaceholderWithDefault, `drop_training_nodes` takes its default. Needs: one truth value, with one of the `NAMES`
that TensorFlow's users give it, and not an input of a signature.
"""

import numpy as np

from tfopt.graph.mutable_graph import Graph
from tfopt.graph.report import Report
from tfopt.graph.rewrite_rule import Maker, Whole, attr

NAMES = {"keras_learning_phase", "learning_phase", "is_training", "is_train", "training", "phase_train", "train_phase"}


def run(graph: Graph, report: Report) -> int:
    """Make constants of them."""
    from tensorflow import bool as boolean

    fired = 0
    for node in graph.of_op("Placeholder"):
        if node.name in graph.fed or attr(node, "dtype") != boolean.as_datatype_enum:
            continue
        if node.name.rpartition("/")[-1] not in NAMES:
            report.refuse("freeze_learning_phase", node.name, "its name says nothing of training")
            continue
        made = Maker(graph, node, node.controls).constant("inference", np.asarray(False))
        graph.remove(node.name)
        graph.rename(made.node, node.name)
        report.fire("freeze_learning_phase", node.name)
        fired += 1
    return fired


LAW = Whole(run)
