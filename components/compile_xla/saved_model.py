"""Write a frozen model so that XLA compiles it: a function for each signature, or single ops with a mark.

A marked function must be compiled as one program, or the call fails. TensorFlow's pass ``MarkForCompilation`` groups
marked ops when the model runs, and runs the others as before.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tfopt.artifacts.reproducible_files import make_saved_model_reproducible
from tfopt.components.compile_xla.sequence_buckets import padded
from tfopt.graph.const_arrays import restore_weights, zero_weights
from tfopt.graph.frozen_model import Frozen, Signature
from tfopt.graph.graph_def import GraphDef, NodeDef, node_of, nodes, reach, subgraph
from tfopt.graph.matching.pattern import COMMUTING
from tfopt.processes.memory import free_graphs
from tfopt.saved_models import saved_model
from tfopt.saved_models.marked_functions import COMPILED
from tfopt.saved_models.unsupported_ops import reason_unsupported
from tfopt.value_types import Tensors

RENAMED = "_compiled"  # the end of the names of functions
MAY_COMPILE = "_XlaCompile"  # attribute of a node


def write_clustered(frozen: Frozen, folder: Path) -> int:
    """Write a SavedModel with its lookup tables and assets, and return the number of ops that may be compiled."""
    marked = [
        node for node in frozen.graph.node if node.op not in ("Const", "Placeholder") and not reason_unsupported(node)
    ]
    for node in marked:
        node.attr[MAY_COMPILE].b = True
    saved_model.write(frozen, folder)
    return len(marked)


def write_compiled(
    frozen: Frozen, folder: Path, sizes: list[int], buckets: Mapping[str, list[int]] = MappingProxyType({})
) -> list[str]:
    """Write a SavedModel, and return the keys of the added signatures.

    Signatures that compute the same, as ``serve`` and ``serving_default`` of Keras, share one function and its weights.
    ``sizes`` are fixed batch sizes; for each, a signature is added to every signature with an open batch size.
    ``buckets`` are the lengths to which sequences are padded, by signature.
    """
    import tensorflow as tf

    signatures, added = {}, []
    graph = _rename_functions(frozen.graph)
    traced = zero_weights(graph)  # TensorFlow copies graphs when it traces and writes them
    programs: dict[bytes, Any] = {}
    for key, signature in frozen.signatures.items():
        digest = _digest(graph, signature)
        serve = programs[digest] = programs.get(digest) or _compiled_function(traced, signature)
        if buckets.get(key):
            serve = padded(serve, signature, buckets[key])
        signatures[key] = _concrete_function(serve, signature, None)
        is_open = any(end.shape and end.shape[0] is None for end in signature.inputs.values())
        for size in sizes if is_open else []:
            added.append(f"{key}_batch_{size}")
            signatures[added[-1]] = _concrete_function(serve, signature, size)
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)
    del programs, serve, signatures
    free_graphs()
    _write_weights(folder / "saved_model.pb", graph)
    del graph
    make_saved_model_reproducible(folder)
    return added


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


def _compiled_function(graph: GraphDef, signature: Signature) -> Any:
    import tensorflow as tf

    outputs = [end.tensor for end in signature.outputs.values()]
    body = subgraph(graph, [end.node for end in signature.outputs.values()])
    placeholders = {end.node for end in signature.inputs.values()}  # XLA does not support placeholders
    for place in reversed([place for place, node in enumerate(body.node) if node.name in placeholders]):
        del body.node[place]
    read = {tensor.partition(":")[0] for node in body.node for tensor in node.input}

    def compiled(**inputs: Any) -> Tensors:
        fed = {end.tensor: inputs[name] for name, end in signature.inputs.items() if end.node in read}
        results = tf.import_graph_def(body, input_map=fed, return_elements=outputs, name="")
        return dict(zip(signature.outputs, results, strict=True))

    compiled.__name__ = COMPILED
    return tf.function(compiled, jit_compile=True, autograph=False)


def _concrete_function(serve: Any, signature: Signature, size: int | None) -> Any:
    import tensorflow as tf

    specs = {}
    for name, end in signature.inputs.items():
        shape = (size, *end.shape[1:]) if size and end.shape and end.shape[0] is None else end.shape
        specs[name] = tf.TensorSpec(shape, tf.as_dtype(end.dtype), name=name)
    if size:  # of its own: the function for any size would be returned instead, since it takes this size, too
        serve = tf.function(serve, autograph=False)
    return serve.get_concrete_function(**specs)
