"""Grappler run offline: what TensorFlow would do to a graph at each start, done once and kept.

Source: Larsen and Shpeisman, "TensorFlow Graph Optimizations", 2019; ``tensorflow/core/grappler/optimizers``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tfopt.errors import ComponentError, first_line, nearest
from tfopt.graph.frozen_model import Frozen, nodes, prune_functions

# Ours, and Grappler's own.
OPTIMIZERS: Mapping[str, str] = MappingProxyType(
    {
        "function": "function",
        "pruning": "pruning",
        "debug_stripper": "debug_stripper",
        "shape": "shape",
        "constant_folding": "constfold",
        "arithmetic": "arithmetic",
        "common_subgraph": "common_subgraph_elimination",
        "loop": "loop",
        "layout": "layout",
        "dependency": "dependency",
        "remapper": "remap",
        "auto_mixed_precision": "auto_mixed_precision",
        "auto_mixed_precision_cpu": "auto_mixed_precision_onednn_bfloat16",
    }
)
# In this order. Not: remapper, whose _Fused ops only TensorFlow can read; layout and mixed precision, whose gain
# depends on the machine; debug_stripper, which removes checks that somebody put there.
PORTABLE = ("function", "pruning", "shape", "constant_folding", "arithmetic", "common_subgraph", "loop", "dependency")
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def run(frozen: Frozen, optimizers: Sequence[str] = PORTABLE) -> Frozen:
    """Return the model as these of Grappler's optimizers leave it, each run in the order given.

    Signatures, and the nodes that are `Frozen.protected`, stay. The remapper, the layout optimizer and mixed precision
    act only on nodes with a device, so each node has this machine's CPU meanwhile. On a CPU, ``layout`` takes NCHW to
    NHWC, and nothing the other way.

    Args:
        frozen: The model, which is left as it is.
        optimizers: Names of `OPTIMIZERS`.

    Raises:
        ComponentError: When a name is unknown, or an optimizer fails.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.grappler import tf_optimizer

    for name in optimizers:
        if name not in OPTIMIZERS:
            raise ComponentError(f"optimizer {name!r}", "the name of a Grappler optimizer", nearest(name, OPTIMIZERS))
    config = ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.optimizers.extend(OPTIMIZERS[name] for name in optimizers)
    rewriting.min_graph_nodes = -1
    rewriting.meta_optimizer_iterations = rewriting.ONE if len(optimizers) == 1 else rewriting.TWO
    rewriting.fail_on_optimizer_errors = True
    rewriting.cpu_layout_conversion = rewriting.NCHW_TO_NHWC  # the other way it refuses to go on a CPU
    try:
        graph = tf_optimizer.OptimizeGraph(config, _item(frozen))
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise ComponentError(
            f"Grappler: {first_line(error)}", "a graph it can optimize", f"leave out one of: {', '.join(optimizers)}"
        ) from error
    known = {node.name: node.device for node in nodes(frozen.graph)}
    for node in nodes(graph):
        node.device = known.get(node.name, "") if node.device == CPU else node.device
    for function in graph.library.function:
        function.attr.pop("_GrapplerSpecializedFunc", None)  # TensorFlow refuses to load it
    prune_functions(graph)
    return replace(frozen, graph=graph)


def _item(frozen: Frozen) -> Any:
    """The graph as Grappler takes it: a MetaGraphDef whose collections name what is fetched and what must stay."""
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    meta = MetaGraphDef()
    meta.graph_def.CopyFrom(frozen.graph)
    for node in meta.graph_def.node:
        node.device = node.device or CPU
    meta.collection_def["train_op"].node_list.value.extend(sorted(frozen.protected))
    return meta
