"""The operations of an OpenVINO graph that 8 bits break."""

from typing import Any

import numpy as np

from tfopt.components.export_openvino import openvino_graph
from tfopt.conversion.exact_values import FloatPart, Operation, Role, find_float_part

RECURRENT = ("LSTMSequence", "LSTMCell", "GRUSequence", "GRUCell", "RNNSequence", "RNNCell")
LAYERS = {*openvino_graph.LAYERS, *RECURRENT, "TensorIterator", "Loop", "If", "Einsum"}
LOOKUPS = ("Gather", "GatherND", "GatherElements")  # in stored weights they are layers; their indices are integers
SHAPES = {"ShapeOf"}
COMPARISONS = {"Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "IsNaN", "IsInf", "Sign"}
EXACT = COMPARISONS | {"Floor", "Ceiling", "Round", "Mod", "FloorMod", "OneHot", "TopK", "Unique", "NonZero"}
EXACT |= {"Range", "Sin", "Cos"}
SCALING = ("Add", "Subtract", "Multiply", "Divide")


def find(model: Any) -> FloatPart:
    """Return the ops of a float ``openvino.Model`` to leave in float, by their friendly names."""
    nodes = [node for node in model.get_ordered_ops() if node.get_type_name() not in ("Constant", "Result")]
    operations = [
        Operation(
            node.get_friendly_name(),
            node.get_type_name(),
            _role(node),
            tuple(_tensor(end.get_source_output()) for end in node.inputs() if not _is_constant(_source(end))),
            tuple(_tensor(output) for output in node.outputs()),
        )
        for node in nodes
        if node.get_type_name() != "Parameter"
    ]
    return find_float_part(
        operations, {_tensor(output) for node in model.get_parameters() for output in node.outputs()}
    )


def _role(node: Any) -> Role:
    kind, ends = node.get_type_name(), node.inputs()
    if kind in LAYERS or (kind in LOOKUPS and _is_constant(_source(ends[0]))):
        return "layer"
    if kind in SHAPES:
        return "shape"
    computed = [end for end in ends if not _is_constant(_source(end))]
    reads_floats = any(end.get_element_type().is_real() for end in computed)
    if kind == "Convert":
        return "exact" if reads_floats and not node.get_output_element_type(0).is_real() else "plain"
    if kind in EXACT and reads_floats:
        return "exact"
    if kind in SCALING and reads_floats and any(map(_has_columns, ends)):
        return "scaling"
    return "plain"


def _has_columns(end: Any) -> bool:
    """Return True if an input is a constant of different numbers."""
    node = _source(end)
    while node.get_type_name() == "Convert":  # of weights in float16
        node = _source(node.input(0))
    return node.get_type_name() == "Constant" and np.unique(node.get_data()).size > 1


def _is_constant(node: Any) -> bool:
    if node.get_type_name() == "Constant":
        return True
    return node.get_type_name() == "Convert" and _is_constant(_source(node.input(0)))


def _source(end: Any) -> Any:
    return end.get_source_output().get_node()


def _tensor(output: Any) -> str:
    return f"{output.get_node().get_friendly_name()}:{output.get_index()}"
