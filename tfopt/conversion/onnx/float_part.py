"""The operations of an ONNX file that 8 bits break, and their inputs in the quantized file."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from tfopt.conversion.activation_ranges import Range
from tfopt.conversion.exact_values import (
    FloatPart,
    Operation,
    Role,
    find_float_part,
    is_mask,
    with_few_levels,
    with_masks,
)

LAYERS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum", "LSTM", "GRU", "RNN", "Loop", "If", "Scan"}
LOOKUPS = {"Gather", "GatherND", "GatherElements"}  # in stored weights they are layers; their indices are integers
SHAPES = {"Shape", "Size"}
COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf", "Sign"}
EXACT = COMPARISONS | {"Floor", "Ceil", "Round", "Mod", "OneHot", "ArgMax", "ArgMin", "TopK", "Unique", "NonZero"}
EXACT |= {"Range", "Sin", "Cos"}
SCALING = {"Add", "Sub", "Mul", "Div"}
BOUNDED = {"Softmax", "Sigmoid", "Tanh"}
FIXED = {"Softmax"}  # ONNX Runtime's quantizer gives their results the range from 0 to 1
SUMS = {"Add", "Sub", "Where", "Max", "Min", "Concat", "Sum"}
LEVELS = 255  # of 8 bits
DEQUANTIZED = "_DequantizeLinear_Output"  # what ONNX Runtime's quantizer adds to the name of a constant
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}


def find(model: onnx.ModelProto) -> FloatPart:
    """Return the nodes to leave in float, after naming them."""
    name_nodes(model.graph)
    operations, inputs = _operations(model)
    return find_float_part(operations, inputs)


def _operations(model: onnx.ModelProto) -> tuple[list[Operation], set[str]]:
    """Return the operations of a model and its inputs."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    constants = read_constants(graph)
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
    operations = []
    for node in graph.node:
        if node.op_type != "Constant":
            reads = tuple(name for name in node.input if name and name not in constants)
            writes = tuple(name for name in node.output if name)
            has_mask = any(is_mask(constants[name]) for name in node.input if name in constants)
            role = _role(node, constants, types)
            operations.append(Operation(node.name, node.op_type, role, reads, writes, has_mask))
    return operations, {value.name for value in graph.input} - set(constants)


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give each node without a name one, by which ONNX Runtime's quantizers can exclude it."""
    for number, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type}_{number}_of_tfopt"


def add_few_levels(
    part: FloatPart, model: onnx.ModelProto, ranges: Mapping[str, Range], infinite: Collection[str] = ()
) -> FloatPart:
    """Add the nodes whose results take few levels in 8 bits, and those that mask values; see `with_masks`."""
    results = {node.output[0]: (node.name, node.op_type) for node in model.graph.node}
    part = with_few_levels(part, results, ranges, FIXED)
    return with_masks(part, _operations(model)[0], ranges, sums=SUMS, bounded=BOUNDED, levels=LEVELS, infinite=infinite)


def read_constants(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    """Return the stored tensors of a graph by name."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return constants


def read_by_layers(model: onnx.ModelProto, names: Collection[str]) -> list[str]:
    """Return those of the tensors that are outputs of the model, or that a layer reads."""
    read = {name for node in model.graph.node if node.op_type in LAYERS for name in node.input}
    read |= {output.name for output in model.graph.output}
    return [name for name in names if name in read]


def restore_inputs(model: onnx.ModelProto, nodes: Collection[str], parent: onnx.ModelProto) -> None:
    """Let these nodes of a quantized model read the float tensors and constants of its parent, not 8-bit values.

    The quantizer replaces a tensor for all of its readers, also for those that are excluded from quantization. Pairs of
    nodes that nothing reads any more are removed.
    """
    producers = {name: node for node in model.graph.node for name in node.output}
    floats = {f"{tensor.name}{DEQUANTIZED}": tensor for tensor in parent.graph.initializer}
    stored = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.name not in nodes:
            continue
        for index, name in enumerate(node.input):
            dequantize = producers.get(name)
            if dequantize is None or dequantize.op_type != "DequantizeLinear":
                continue
            quantize = producers.get(dequantize.input[0])
            if quantize is not None and quantize.op_type == "QuantizeLinear":
                node.input[index] = quantize.input[0]
            elif (tensor := floats.get(name)) is not None:
                node.input[index] = tensor.name
                if tensor.name not in stored:
                    model.graph.initializer.append(tensor)
                    stored.add(tensor.name)
    outputs = {value.name for value in model.graph.output}
    readers = Counter(name for node in model.graph.node for name in node.input)
    for node in list(reversed(model.graph.node)):
        is_pair = node.op_type in ("QuantizeLinear", "DequantizeLinear")
        if is_pair and node.output[0] not in outputs and not readers[node.output[0]]:
            readers.subtract(node.input)
            model.graph.node.remove(node)


def _role(node: onnx.NodeProto, constants: dict[str, NDArray[Any]], types: dict[str, int]) -> Role:
    stored = [constants[name] for name in node.input if name in constants]
    if node.op_type in LAYERS or (node.op_type in LOOKUPS and node.input[0] in constants):
        return "layer"
    if node.op_type in SHAPES:
        return "shape"
    reads_floats = any(types.get(name, TensorProto.FLOAT) in FLOATS for name in node.input if name not in constants)
    if node.op_type == "Cast":
        target = next(attribute.i for attribute in node.attribute if attribute.name == "to")
        return "exact" if reads_floats and target not in FLOATS else "plain"
    if node.op_type in EXACT and reads_floats:
        return "exact"
    if node.op_type in SCALING and any(array.dtype.kind == "f" and np.unique(array).size > 1 for array in stored):
        return "scaling"
    return "plain"
