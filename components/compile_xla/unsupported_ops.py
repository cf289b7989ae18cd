"""Find the ops of a model that XLA cannot compile."""

from typing import Any

from tfopt.artifacts.saved_model_proto import functions_called
from tfopt.graph.frozen_model import Frozen, nodes
from tfopt.graph.op_registry import definition

DEVICE = "XLA_CPU_JIT"  # TensorFlow registers XLA's kernels by device; a GPU has nearly the same
STRUCTURE = {"Const", "Placeholder", "NoOp", "Identity", "IdentityN", "If", "While", "Case", "PartitionedCall"}
STRUCTURE |= {"StatelessIf", "StatelessWhile", "StatelessCase", "StatefulPartitionedCall"}
IGNORED = {"Assert", "Const"}  # XLA drops Assert; a text constant is reported with the op that reads it
# The size of their outputs depends on the data, while XLA fixes all sizes at compile time.
DYNAMIC = {
    "Where",
    "Unique",
    "UniqueV2",
    "NonMaxSuppressionV3",
    "NonMaxSuppressionV5",
    "BooleanMask",
    "DynamicPartition",
}


def find_unsupported_ops(frozen: Frozen) -> dict[str, str]:
    """Return the ops that XLA lacks or cannot give a fixed size, each with the reason and the name of a node."""
    library = {function.signature.name for function in frozen.graph.library.function}
    functions = functions_called(nodes(frozen.graph)) & library
    reasons: dict[str, str] = {}
    for node in nodes(frozen.graph):
        if node.op in functions or node.op in reasons:
            continue
        reason = reason_unsupported(node)
        if reason:
            reasons[node.op] = f"{reason} ({node.name})"
    return dict(sorted(reasons.items()))


def reason_unsupported(node: Any) -> str | None:
    """Return why XLA cannot compile a node; None if no reason is known before the compilation."""
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
        return "the size of its output depends on the data"
    tf.constant(0)  # TensorFlow registers XLA's kernels with its devices, not before
    devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(node.op).kernel}
    if DEVICE not in devices:
        return "XLA has no kernel for it"
    return None


def _arguments(node: Any) -> list[Any]:
    op = definition(node.op)
    return [*op.input_arg, *op.output_arg] if op else []
