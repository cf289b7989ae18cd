"""Run a GraphDef in a session, with the graph optimizers of TensorFlow off."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray


def evaluate(graph_def: Any, fetches: Sequence[str], feeds: Mapping[str, Any] | None = None) -> list[NDArray[Any]]:
    """Return the values of tensors (``name:0``); ``feeds`` has the values of others.

    Raises:
        tf.errors.OpError: If an operation fails.
    """
    with session(graph_def) as opened:
        values: list[NDArray[Any]] = opened.run(list(fetches), dict(feeds or {}))
    return values


def session(graph_def: Any) -> Any:
    """Return an open ``tf.compat.v1.Session`` for a GraphDef."""
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto()
    config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(graph_def, name="")
    return tf.compat.v1.Session(graph=graph, config=config)
