"""Write a frozen model as a SavedModel whose signatures call functions with attributes, instead of one flat graph.

The function of a signature is compiled by XLA as one program, or computes in the layout that its graph has.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from tfopt.artifacts.reproducible_files import make_saved_model_reproducible
from tfopt.errors import ComponentError
from tfopt.graph.const_arrays import restore_weights, zero_weights
from tfopt.graph.frozen_model import Frozen, Signature
from tfopt.graph.law_runner import optimize
from tfopt.graph.matching.pattern import COMMUTING
from tfopt.graph.report import Report
from tfopt.graph_def import GraphDef, NodeDef, node_of, nodes, reach, subgraph
from tfopt.processes.memory import free_graphs
from tfopt.saved_models.marked_functions import NO_INLINE
from tfopt.value_types import Tensors

RENAMED = "_compiled"  # the end of the names of functions
LAYOUT = "layout_optimizer"
# In a session, Grappler optimizes all functions of a graph with the session's options, but those with this attribute:
# they are optimized with the options of their call.
OPTIMIZED_WHEN_CALLED = "_tf_data_function"


def write_functions(
    frozen: Frozen,
    folder: Path,
    name: str,
    options: Mapping[str, Any],
    sizes: Sequence[int] = (),
    wrap: Callable[[str, Signature, Any], Any] = lambda key, signature, serve: serve,
) -> list[str]:
    """Write a SavedModel, and return the keys of the added signatures.

    The functions have this name, and are made with these options of `tf.function`. Signatures that compute the same, as
    ``serve`` and ``serving_default`` of Keras, share one function and its weights. ``sizes`` are fixed batch sizes; for
    each, a signature is added to every signature with an open batch size. ``wrap`` gets the key of a signature, the
    signature and its function, and returns the one that is served.
    """
    import tensorflow as tf

    signatures, added = {}, []
    graph = _rename_functions(frozen.graph)
    traced = zero_weights(graph)  # TensorFlow copies graphs when it traces and writes them
    functions: dict[bytes, Any] = {}
    for key, signature in frozen.signatures.items():
        digest = _digest(graph, signature)
        functions[digest] = functions.get(digest) or _function(traced, signature, name, options)
        serve = wrap(key, signature, functions[digest])
        signatures[key] = _concrete_function(serve, signature, None)
        is_open = any(end.shape and end.shape[0] is None for end in signature.inputs.values())
        for size in sizes if is_open else []:
            added.append(f"{key}_batch_{size}")
            signatures[added[-1]] = _concrete_function(serve, signature, size)
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    del functions, serve, signatures
    free_graphs()
    _write_weights(folder / "saved_model.pb", graph)
    del graph
    make_saved_model_reproducible(folder)
    return added


def share_signatures(frozen: Frozen, first: str) -> Frozen:
    """Return a model in which signatures that compute the same have the same nodes, those of the ``first`` if possible.

    Keras exports ``serve`` next to ``serving_default``: a step would optimize, calibrate and compare both. A model that
    writes variables is returned unchanged.
    """
    shared: dict[bytes, Signature] = {}
    for key in sorted(frozen.signatures, key=lambda key: key != first) if not frozen.state else ():
        shared.setdefault(_digest(frozen.graph, frozen.signatures[key]), frozen.signatures[key])
    if not shared or len(shared) == len(frozen.signatures):
        return frozen
    signatures = {
        key: replace(shared[_digest(frozen.graph, signature)], method=signature.method)
        for key, signature in frozen.signatures.items()
    }
    return optimize(replace(frozen, signatures=signatures), ("strip_unused",), Report())


def check_fixed_layout(frozen: Frozen) -> None:
    """Raise ComponentError if a model has lookup tables, or variables that it writes."""
    if frozen.initializer or frozen.state:
        received = "fixed_layout for a model with lookup tables, or with variables that it writes"
        raise ComponentError(received, "a graph of constants", "leave fixed_layout out")


def write_with_fixed_layout(frozen: Frozen, folder: Path) -> None:
    """Write a SavedModel whose convolutions have the layout of the graph (NHWC or NCHW) also on a GPU.

    When a model is loaded on a GPU, Grappler's layout optimizer converts its convolutions to the layout that a rule for
    the GPU and the dtype chooses. The call of a function has Grappler's options in its attribute ``config_proto``. They
    are those of this process at the time of the call's tracing, and are effective if the function is not inlined.
    """
    import tensorflow as tf

    attributes = {NO_INLINE: True, OPTIMIZED_WHEN_CALLED: True}
    before = tf.config.optimizer.get_experimental_options().get(LAYOUT, True)
    tf.config.optimizer.set_experimental_options({LAYOUT: False})
    try:
        write_functions(frozen, folder, "fixed_layout", {"experimental_attributes": attributes})
    finally:
        tf.config.optimizer.set_experimental_options({LAYOUT: before})


def _write_weights(file: Path, graph: GraphDef) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel as Proto

    proto = Proto.FromString(file.read_bytes())
    for meta_graph in proto.meta_graphs:
        restore_weights(meta_graph.graph_def, graph)
    file.write_bytes(proto.SerializeToString(deterministic=True))


def _rename_functions(graph: GraphDef) -> GraphDef:
    """Return a copy whose functions have other names than the parent's, which this process has loaded.

    TensorFlow has one function of each name, and both may differ: the bodies of the copy were optimized. A graph
    without functions is not copied.
    """
    if not graph.library.function:
        return graph
    renamed = deepcopy(graph)
    library = renamed.library
    names = {function.signature.name for function in library.function}
    for value in [value for node in nodes(renamed) for value in node.attr.values()]:
        for called in [value.func] if value.HasField("func") else value.list.func:
            called.name += RENAMED if called.name in names else ""
    for function in library.function:
        function.signature.name += RENAMED
    for gradient in library.gradient:
        gradient.function_name += RENAMED if gradient.function_name in names else ""
        gradient.gradient_func += RENAMED if gradient.gradient_func in names else ""
    return renamed


def _digest(graph: GraphDef, signature: Signature) -> bytes:
    """Return a digest that is equal for signatures that compute the same.

    Their graphs may have other names, and other orders of the inputs of commutative operations, which Grappler sorts by
    name.
    """
    by_name = {node.name: node for node in graph.node}
    digests = {end.node: f"<{name}>" for name, end in signature.inputs.items()}
    sources = {node.name: [] if node.name in digests else list(map(node_of, node.input)) for node in graph.node}
    names = reach([end.node for end in signature.outputs.values()], lambda name: sources[name])
    try:
        order = list(TopologicalSorter({name: sources[name] for name in names}).static_order())
    except CycleError:  # a loop of TensorFlow 1
        return repr(signature).encode()
    for name in order:
        digests[name] = digests.get(name) or _node_digest(by_name[name], digests)
    ends = [(name, end.dtype, end.shape) for name, end in (signature.inputs | signature.outputs).items()]
    outputs = [_renamed(end.tensor, digests) for end in signature.outputs.values()]
    ops = Counter(by_name[name].op for name in names)  # one random value for two readers is not the same as two
    return hashlib.sha256(repr((ends, outputs, sorted(ops.items()))).encode()).digest()


def _node_digest(node: NodeDef, digests: Mapping[str, str]) -> str:
    inputs = [_renamed(source, digests) for source in node.input]
    inputs = sorted(inputs) if node.op in COMMUTING else inputs
    digest = hashlib.sha256(repr((node.op, node.device, inputs)).encode())
    for key in sorted(node.attr.keys() - {"_class"}):  # names nodes
        digest.update(key.encode() + node.attr[key].SerializeToString(deterministic=True))
    return digest.hexdigest()


def _renamed(source: str, digests: Mapping[str, str]) -> str:
    return source.replace(node_of(source), digests[node_of(source)], 1)


def _function(graph: GraphDef, signature: Signature, name: str, options: Mapping[str, Any]) -> Any:
    import tensorflow as tf

    outputs = [end.tensor for end in signature.outputs.values()]
    body = subgraph(graph, [end.node for end in signature.outputs.values()])
    placeholders = {end.node for end in signature.inputs.values()}  # XLA does not support placeholders
    for place in reversed([place for place, node in enumerate(body.node) if node.name in placeholders]):
        del body.node[place]
    read = {tensor.partition(":")[0] for node in body.node for tensor in node.input}

    def function(**inputs: Any) -> Tensors:
        fed = {end.tensor: inputs[name] for name, end in signature.inputs.items() if end.node in read}
        results = tf.import_graph_def(body, input_map=fed, return_elements=outputs, name="")
        return dict(zip(signature.outputs, results, strict=True))

    function.__name__ = name
    return tf.function(function, autograph=False, **options)


def _concrete_function(serve: Any, signature: Signature, size: int | None) -> Any:
    import tensorflow as tf

    specs = {}
    for name, end in signature.inputs.items():
        shape = (size, *end.shape[1:]) if size and end.shape and end.shape[0] is None else end.shape
        specs[name] = tf.TensorSpec(shape, tf.as_dtype(end.dtype), name=name)
    if size:  # of its own: the function for any size would be returned instead, since it takes this size, too
        serve = tf.function(serve, autograph=False)
    return serve.get_concrete_function(**specs)
