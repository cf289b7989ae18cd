"""Set a learning phase that is not an input to inference.

    keras_learning_phase = false

    before    Placeholder(keras_learning_phase) -> Switch, If, …
    after     Const(false) -> Switch, If, …

Such a graph could not run without a value for it. `fold_switches` and `fold_branches` then select the live side. If it
is a PlaceholderWithDefault, `drop_training_nodes` uses its default.

Requires: a scalar bool with one of the usual `NAMES`, which is not an input of a signature.
"""

import numpy as np

from tfopt.graph.law import Graph, Maker, Node, SearchLaw, Tensor, attr

NAMES = {"keras_learning_phase", "learning_phase", "is_training", "is_train", "training", "phase_train", "train_phase"}


def find(graph: Graph, node: Node) -> Node | str | None:
    from tensorflow import bool as boolean

    if node.name in graph.fed or attr(node, "dtype") != boolean.as_datatype_enum:
        return None
    return node if node.name.rpartition("/")[-1] in NAMES else "its name is not one of a learning phase"


def rewrite(phase: Node, make: Maker) -> list[Tensor]:
    return [make.constant("inference", np.asarray(False))]


LAW = SearchLaw(
    ("Placeholder",),
    find,
    rewrite,
    in_frames=True,
    requires=(),
    after={"strip_unused": "unused nodes cost every later law time, and count as consumers"},
    before={"fold_constants": "conditions that are computed from the learning phase are constants then"},
)
