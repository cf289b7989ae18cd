"""What XLA cannot compile, by operation, with the reason."""

from typing import Any

from tfopt.graph.frozen_model import Frozen, functions_called, nodes
from tfopt.graph.op_registry import definition

DEVICE = "XLA_CPU_JIT"  # TensorFlow registers XLA's operations by device; a GPU's set is the same but for a few
STRUCTURE = {"Const", "Placeholder", "NoOp", "Identity", "IdentityN", "If", "While", "Case", "PartitionedCall"}
STRUCTURE |= {"StatelessIf", "StatelessWhile", "StatelessCase", "StatefulPartitionedCall"}
IGNORED = {"Assert", "Const"}  # Assert is left out, as XLA does; a constant text goes with what reads it
# Their result has as many values as the data say, and XLA fixes all sizes when it compiles.
DYNAMIC = {
    "Where",
    "Unique",
    "UniqueV2",
    "NonMaxSuppressionV3",
    "NonMaxSuppressionV5",
    "BooleanMask",
    "DynamicPartition",
}


def obstacles(frozen: Frozen) -> dict[str, str]:
    """Return the operations that XLA lacks or cannot give a fixed size, each with the reason and a node's name."""
    functions = functions_called(nodes(frozen.graph)) & {one.signature.name for one in frozen.graph.library.function}
    found: dict[str, str] = {}
    for node in nodes(frozen.graph):
        if node.op in functions or node.op in found:
            continue
        reason = obstacle(node)
        if reason:
            found[node.op] = f"{reason} ({node.name})"
    return dict(sorted(found.items()))


def obstacle(node: Any) -> str | None:
    """Return why XLA cannot compile a node, None where it can as far as is known before it tries."""
    import tensorflow as tf
    from tensorflow.python.framework import kernels

    if node.op in IGNORED:
        return None
    text = [key for key, value in node.attr.items() if value.type == tf.string.as_datatype_enum]
    if text or any(argument.type == tf.string.as_datatype_enum for argument in _arguments(node)):
        return "it handles text"
    if node.op in STRUCTURE:
        return None
    if node.op in DYNAMIC:
        return "how many values it gives depends on the data"
    devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(node.op).kernel}
    if DEVICE not in devices:
        return "XLA has no kernel for it"
    return None


def _arguments(node: Any) -> list[Any]:
    found = definition(node.op)
    return [*found.input_arg, *found.output_arg] if found else []
