"""Run the optimizers of Grappler offline, so that their result is stored in the model.

Source: Larsen and Shpeisman, "TensorFlow Graph Optimizations", 2019; ``tensorflow/core/grappler/optimizers``.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph_def import GraphDef, nodes, prune_functions

OTHER_NAMES = {  # of Grappler for these optimizers
    "constant_folding": "constfold",
    "common_subgraph": "common_subgraph_elimination",
    "remapper": "remap",
    "auto_mixed_precision_cpu": "auto_mixed_precision_onednn_bfloat16",
}
OPTIMIZERS: tuple[str, ...] = ("function", "pruning", "debug_stripper", "shape", "constant_folding", "arithmetic")
OPTIMIZERS += ("common_subgraph", "loop", "layout", "dependency", "remapper")
OPTIMIZERS += ("auto_mixed_precision", "auto_mixed_precision_cpu")
# In this order. Left out: remapper (its _Fused ops can be read by TensorFlow only), layout and mixed precision (their
# gain depends on the machine), and debug_stripper (it removes checks that the author of the model added).
PORTABLE = ("function", "pruning", "shape", "constant_folding", "arithmetic", "common_subgraph", "loop", "dependency")
UNCHECKING = "debug_stripper"  # its effect: inputs that the model refuses are accepted
VALUE_FREE = {"function", "pruning", "debug_stripper", "dependency"}  # these do not read weights
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


def run(frozen: Frozen, optimizers: Sequence[str] = PORTABLE, preserved: Collection[str] = ()) -> Frozen:
    """Return the model after some of `OPTIMIZERS`, run in the given order.

    Nodes to be preserved keep their names, and are not replaced by an Identity. Signatures and `Frozen.protected` nodes
    stay. The remapper, the layout optimizer and mixed precision change only nodes with a device, so all nodes are
    placed on the CPU of this machine during the run. On a CPU, ``layout`` converts NCHW to NHWC, never the other way.

    Raises:
        ComponentError: If a name is unknown, or an optimizer fails.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.grappler import tf_optimizer

    from tfopt.graph.const_arrays import transform  # imports NumPy, which checks of names of passes do not need

    for name in optimizers:
        if name not in OPTIMIZERS:
            raise ComponentError(f"optimizer {name!r}", "the name of a Grappler optimizer", nearest(name, OPTIMIZERS))
    config = ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.optimizers.extend(OTHER_NAMES.get(name, name) for name in optimizers)
    rewriting.min_graph_nodes = -1
    rewriting.meta_optimizer_iterations = rewriting.ONE if len(optimizers) == 1 else rewriting.TWO
    rewriting.fail_on_optimizer_errors = True
    rewriting.cpu_layout_conversion = rewriting.NCHW_TO_NHWC  # on a CPU, Grappler raises for the other direction

    def optimized(graph: GraphDef) -> GraphDef:
        return tf_optimizer.OptimizeGraph(config, _item(replace(frozen, graph=graph), preserved))

    try:
        graph = transform(frozen.graph, optimized) if set(optimizers) <= VALUE_FREE else optimized(frozen.graph)
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        fix = f"leave out one of: {', '.join(optimizers)}"
        raise ComponentError(f"Grappler: {first_line(error)}", "a graph it can optimize", fix) from error
    _restore(frozen.graph, graph, preserved)
    devices = {node.name: node.device for node in nodes(frozen.graph)}
    for node in nodes(graph):
        node.device = devices.get(node.name, "") if node.device == CPU else node.device
    for function in graph.library.function:
        function.attr.pop("_GrapplerSpecializedFunc", None)  # TensorFlow refuses to load it
    prune_functions(graph)
    return replace(frozen, graph=graph)


def _restore(before: Any, after: Any, names: Collection[str]) -> None:
    """Restore operations with one constant that became an Identity of their data, as x + 0 does."""
    old = {node.name: node for node in before.node} if names else {}
    new = {node.name: node for node in after.node} if names else {}
    for name in sorted(names):
        data, *others = new[name].input if name in new and new[name].op in ("Identity", "Snapshot") else ("",)
        constants = [source for source in old[name].input if source in old and old[source].op == "Const"]
        if not data or old[name].op in ("Identity", "Snapshot") or len(constants) != 1:
            continue
        inputs = [source if source in constants else data for source in old[name].input if not source.startswith("^")]
        waits = [source for source in others if source.lstrip("^") not in constants]
        new[name].CopyFrom(old[name])
        new[name].input[:] = [*inputs, *waits]
        if constants[0] not in new:
            new[constants[0]] = after.node.add()
            new[constants[0]].CopyFrom(old[constants[0]])


def _item(frozen: Frozen, preserved: Collection[str]) -> Any:
    """Return the input of Grappler: a MetaGraphDef whose collection ``train_op`` lists the nodes to preserve."""
    from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef

    meta = MetaGraphDef()
    meta.graph_def.CopyFrom(frozen.graph)
    for node in meta.graph_def.node:
        node.device = node.device or CPU
    meta.collection_def["train_op"].node_list.value.extend(sorted({*frozen.protected, *preserved}))
    return meta
