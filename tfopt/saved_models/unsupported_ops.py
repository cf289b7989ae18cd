from tfopt.artifacts.saved_model_proto import functions_called
from tfopt.errors import ComponentError
from tfopt.graph.frozen_model import Frozen
from tfopt.graph.op_registry import definition
from tfopt.graph_def import STRING, NodeDef, nodes

DEVICE = "XLA_CPU_JIT"  # TensorFlow registers XLA's kernels by device; a GPU has nearly the same
STRUCTURE = {"Const", "Placeholder", "NoOp", "Identity", "IdentityN", "If", "While", "Case", "PartitionedCall"}
STRUCTURE |= {"StatelessIf", "StatelessWhile", "StatelessCase", "StatefulPartitionedCall"}
IGNORED = {"Assert", "Const"}  # XLA drops Assert; a text constant is reported with the op that reads it
# The size of their outputs depends on the data, while XLA fixes all sizes at compile time.
DYNAMIC = {"BooleanMask", "DynamicPartition", "NonMaxSuppressionV3", "NonMaxSuppressionV5"}
DYNAMIC |= {"Unique", "UniqueV2", "Where"}


def find_unsupported_ops(frozen: Frozen) -> dict[str, str]:
    """Return the ops that XLA lacks or cannot give a fixed size, each with the reason and the name of a node."""
    library = {function.signature.name for function in frozen.graph.library.function}
    functions = functions_called(nodes(frozen.graph)) & library
    reasons: dict[str, str] = {}
    for node in nodes(frozen.graph):
        if node.op in functions or node.op in reasons:
            continue
        if reason := reason_unsupported(node):
            reasons[node.op] = f"{reason} ({node.name})"
    return dict(sorted(reasons.items()))


def check_supported(frozen: Frozen, fix: str) -> None:
    """Raise ComponentError, with its third part ``fix``, if XLA cannot compile an op."""
    if unsupported := find_unsupported_ops(frozen):
        reasons = "; ".join(f"{op}: {reason}" for op, reason in unsupported.items())
        received = f"operations that XLA cannot compile: {reasons}"
        raise ComponentError(received, "a model whose every operation XLA can compile", fix)


def reason_unsupported(node: NodeDef) -> str | None:
    """Return why XLA cannot compile a node; None if no reason is known before the compilation."""
    from tensorflow import constant
    from tensorflow.python.framework import kernels

    if node.op in IGNORED:
        return None
    op_def = definition(node.op)
    arguments = [*op_def.input_arg, *op_def.output_arg] if op_def else []
    if any(item.type == STRING for item in (*node.attr.values(), *arguments)):
        return "it handles text"
    if node.op in STRUCTURE:
        return None
    if node.op in DYNAMIC:
        return "the size of its output depends on the data"
    if node.op == "TensorListSetItem" and node.attr["resize_if_index_out_of_bounds"].b:
        return "its list grows, which XLA compiles to an empty one"
    constant(0)  # TensorFlow registers XLA's kernels with its devices, not before
    devices = {kernel.device_type for kernel in kernels.get_registered_kernels_for_op(node.op).kernel}
    return None if DEVICE in devices else "XLA has no kernel for it"
