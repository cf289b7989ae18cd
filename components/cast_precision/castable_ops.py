"""Select the operations to cast: float32 operations with a 16-bit kernel whose constants are in range."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.law_runner import graph_of
from tfopt.graph.mutable_graph import Graph, Node
from tfopt.graph.op_registry import definition, is_pure
from tfopt.graph_def import FLOAT, VARIANT, data_type

NEVER = {"Cast", "Const", "Placeholder", "PlaceholderWithDefault"}  # their dtype follows from their neighbors


def candidates(frozen: Frozen, precision: str, keep: Sequence[str]) -> tuple[set[str], dict[str, dict[str, int]]]:
    """Return the nodes to cast, and the counts of operations that stay in float32, by reason.

    Raises:
        ComponentError: If an operation to keep is not an operation of TensorFlow.
    """
    import tensorflow as tf

    for op in keep:
        if definition(op) is None:
            raise ComponentError(f"keep={op!r}", "the name of a TensorFlow operation", nearest(op, dir(tf.raw_ops)))
    stays: dict[str, Counter[str]] = defaultdict(Counter)
    graph, chosen, largest = graph_of(frozen), set(), float(tf.as_dtype(precision).max)
    for node in graph.nodes.values():
        if node.op in NEVER or not _computes_in_float(node) or node.name in graph.fetched:
            continue
        reason = "kept by request" if node.op in keep else _refusal(graph, node, precision, largest)
        if reason:
            stays[reason][node.op] += 1
        else:
            chosen.add(node.name)
    return chosen, {reason: dict(ops.most_common()) for reason, ops in stays.items()}


def _computes_in_float(node: Node) -> bool:
    op_def = definition(node.op)
    named = [entry.name for entry in op_def.attr if entry.type == "type"] if op_def else []
    return any(node.attr[name].type == FLOAT for name in named if name in node.attr)


def _refusal(graph: Graph, node: Node, precision: str, largest: float) -> str | None:
    if not is_pure(node):
        return "has effects or draws random numbers"
    op_def = definition(node.op)
    if any(argument.type == VARIANT for argument in (*op_def.input_arg, *op_def.output_arg)):
        return "reads or writes a list, which a loop or a branch reads in float32"
    attributes = changed_attributes(node, precision)
    if not attributes:
        return f"takes no {precision}"
    if not _has_kernel(node, attributes, precision):
        return f"has no {precision} kernel for this CPU"
    for tensor in node.inputs:
        if graph.is_constant(tensor):
            values = graph.array(tensor)
            if values.dtype == np.float32 and values.size and not np.abs(values).max() <= largest:
                return f"has a constant out of the range of {precision}"
    return None


def changed_attributes(node: Node, precision: str) -> list[str]:
    """Return the type attributes of a node that are float32 and allow this precision."""
    dtype = data_type(precision)
    op_def = definition(node.op)
    return [
        entry.name
        for entry in (op_def.attr if op_def else ())
        if entry.type == "type"
        and entry.name in node.attr
        and node.attr[entry.name].type == FLOAT
        and (not entry.HasField("allowed_values") or dtype in entry.allowed_values.list.type)
    ]


def _has_kernel(node: Node, attributes: list[str], precision: str) -> bool:
    from tensorflow.python.framework import kernels

    dtype = data_type(precision)

    def takes(kernel: Any) -> bool:
        limits = {limit.name: limit.allowed_values.list.type for limit in kernel.constraint}
        return all(name not in limits or dtype in limits[name] for name in attributes)

    registered = kernels.get_registered_kernels_for_op(node.op).kernel
    return any(kernel.device_type == "CPU" and not kernel.label and takes(kernel) for kernel in registered)
