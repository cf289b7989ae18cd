"""Read a frozen GraphDef (``.pb``) by the names of its inputs and outputs, and write one."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Endpoint, Frozen, Signature
from tfopt.graph.mutable_graph import Graph, Node, Tensor
from tfopt.graph.op_registry import output_types
from tfopt.graph.shape_inference import infer_shape
from tfopt.graph_def import data_type, node_of, subgraph
from tfopt.saved_models import freezer as freezing
from tfopt.saved_models.effects import check_effects, node_effects
from tfopt.saved_models.removed_ops import removed_in, replace_removed

SHOWN = 8  # names in a message
HANDLES = ("resource", "variant")
FORM = re.compile(r"(?P<tensor>[^=^]+)(?P<shape>=((\?|\d+)(x(\?|\d+))*)?)?")


def read_graph(file: Path, inputs: Sequence[str], outputs: Sequence[str]) -> Frozen:
    """Read a frozen GraphDef. Inputs and outputs are named after their nodes, without scopes.

    Args:
        file: A serialized GraphDef.
        inputs: Nodes or tensors that are fed: ``image``, ``image:0``, or with a shape ``image=?x28x28x1``. The graph is
            cut at those that it computes. None for a graph of constants.
        outputs: Nodes or tensors that are fetched.

    Raises:
        ComponentError: If the file is no GraphDef, names are missing or unknown, or the graph has variables.
    """
    graph_def, imported = _import(file)
    if not outputs:
        raise _unnamed(file, "outputs", _unread(imported))
    signature = Signature(_ends(imported, inputs, file), _ends(imported, outputs, file))
    for name, end in signature.inputs.items():
        if end.dtype in HANDLES:
            raise ComponentError(f"{file}: input {name} is a {end.dtype}", "tensors", "name what is computed with it")
        if end.shape is None:
            signature.inputs[name] = replace(end, shape=infer_shape(graph_def, end.tensor))
    frozen = _cut(Frozen(graph_def, {"serving_default": signature}))
    check_effects(node_effects(frozen.graph), file)
    if removed := next((node for node in frozen.graph.node if removed_in(node.op)), None):
        received = f"{file}: {removed.name} ({removed.op}) was removed in version {removed_in(removed.op)} of graphs"
        expected = "operations that TensorFlow runs in new graphs"
        raise ComponentError(received, expected, "name inputs behind it, or outputs before it")
    if not inputs and (needed := _placeholders(frozen.graph)):
        raise _unnamed(file, "inputs", needed)
    frozen = freezing.freeze(frozen, None)
    if needed := _placeholders(frozen.graph, others=frozen.inputs):
        received = f"{file}: the outputs depend on {', '.join(needed)}"
        raise ComponentError(received, "placeholders that are inputs", f"add {needed} to inputs")
    return frozen


def write_graph(frozen: Frozen, file: Path) -> None:
    """Write the graph of a model as a serialized GraphDef.

    Raises:
        ComponentError: If the model has an initialization op or assets, which a GraphDef cannot contain.
    """
    if frozen.initializer or frozen.assets:
        raise ComponentError("a model with lookup tables or assets", "one without", "write it as a SavedModel")
    file.write_bytes(frozen.graph.SerializeToString(deterministic=True))


def _import(file: Path) -> tuple[Any, Any]:
    """Return the GraphDef of a file, and a ``tf.Graph`` of it, with which TensorFlow checks it and infers shapes."""
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    try:
        graph_def = replace_removed(tf.compat.v1.GraphDef.FromString(file.read_bytes()))
        with tf.Graph().as_default() as imported:
            tf.import_graph_def(graph_def, name="")
    except (DecodeError, ValueError, tf.errors.OpError) as error:
        fix = "check the file; a SavedModel goes in as its folder"
        raise ComponentError(f"{file}: {first_line(error)}", "a serialized GraphDef", fix) from error
    return graph_def, imported


def _ends(graph: Any, texts: Sequence[str], file: Path) -> dict[str, Endpoint]:
    endpoints: dict[str, Endpoint] = {}
    for text in texts:
        match = FORM.fullmatch(text)
        if not match:
            raise ComponentError(f"{file}: {text!r}", "NODE, NODE:OUTPUT or NODE=SHAPE", "write x, x:0 or x=?x28x28x1")
        tensor = _tensor(graph, match["tensor"], file)
        if any(end.tensor == tensor.name for end in endpoints.values()):
            raise ComponentError(f"{file}: {text!r} twice", "each name once", "leave one of them out")
        sizes = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
        if match["shape"]:
            sizes = tuple(None if size == "?" else int(size) for size in match["shape"][1:].split("x") if size)
            if not tensor.shape.is_compatible_with(sizes):
                raise ComponentError(f"{file}: {text!r}", f"a shape like {tensor.shape}", "change it or leave it out")
        node, _, index = tensor.name.partition(":")
        short_name = node.rpartition("/")[2] + (f"_{index}" if index != "0" else "")
        key = short_name if short_name not in endpoints else re.sub(r"\W", "_", tensor.name.removesuffix(":0"))
        endpoints[key] = Endpoint(tensor.name, tensor.dtype.base_dtype.name, sizes)
    return endpoints


def _tensor(graph: Any, name: str, file: Path) -> Any:
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError) as error:
        node = node_of(name)
        operations = {operation.name: operation for operation in graph.get_operations()}
        fix = nearest(node, operations)
        if node in operations:
            last = len(operations[node].outputs) - 1
            span = {-1: "another node", 0: f"{node}:0"}.get(last, f"{node}:0 to {node}:{last}")
            fix = f"{operations[node].type} {node} has {last + 1 or 'no'} outputs: name {span}"
        elif fix.startswith("known"):
            fix = f"name one of {', '.join([*_placeholders(graph.as_graph_def()), *_unread(graph)])}, or another node"
        raise ComponentError(f"{file}: no tensor {name}", "an output of a node of the graph", fix) from error


def _cut(frozen: Frozen) -> Frozen:
    """Return the model with a Placeholder for each input that the graph computes; what only these need is unused."""
    from tensorflow import TensorShape
    from tensorflow.compat.v1 import AttrValue

    graph = Graph.of(frozen.graph)
    signature = frozen.signatures["serving_default"]
    renamed: dict[str, str] = {}
    for end in signature.inputs.values():
        source = Tensor.read(end.tensor)
        node = graph.nodes[source.node]
        kind, shape = AttrValue(type=data_type(end.dtype)), AttrValue(shape=TensorShape(end.shape).as_proto())
        name = node.name
        if len(output_types(node)) > 1:
            name = graph.fresh(re.sub(r"\W", "_", end.tensor))
            renamed[end.tensor] = f"{name}:0"
            graph.redirect(source, Tensor(name))
        else:
            graph.remove(name)
        graph.insert(Node(name, "Placeholder", [], [], {"dtype": kind, "shape": shape}, node.device))

    def moved(ends: dict[str, Endpoint]) -> dict[str, Endpoint]:
        return {key: replace(end, tensor=renamed.get(end.tensor, end.tensor)) for key, end in ends.items()}

    cut = {"serving_default": Signature(moved(signature.inputs), moved(signature.outputs))}
    smaller = Frozen(graph.to_graph_def(), cut)
    return replace(smaller, graph=subgraph(smaller.graph, smaller.protected))


def _placeholders(graph_def: Any, others: Iterable[str] = ()) -> list[str]:
    names = [node.name for node in graph_def.node if node.op == "Placeholder"]
    return [name for name in names if name not in set(others)][:SHOWN]


def _unread(graph: Any) -> list[str]:
    """Return the names of the nodes without readers, at most `SHOWN`."""
    nodes = graph.get_operations()
    return [node.name for node in nodes if node.outputs and not any(end.consumers() for end in node.outputs)][:SHOWN]


def _unnamed(file: Path, side: str, names: list[str]) -> ComponentError:
    received = f"{file}: a graph without the names of its {side}"
    expected = "the nodes that are fed and those that are fetched"
    return ComponentError(received, expected, f"pass {side}={names}, or some of these")
