"""Casts of an ONNX model to float16 or bfloat16, with unchanged inputs and outputs."""

from collections.abc import Iterator

import ml_dtypes
import onnx
from onnx import TensorProto, numpy_helper, version_converter
from onnxruntime.transformers.float16 import convert_float_to_float16
from onnxruntime.transformers.onnx_model import OnnxModel

from tfopt.conversion.onnx.node_order import subgraphs
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError

BFLOAT_OPSET = 22  # the first in which convolutions and poolings take bfloat16
BFLOAT_IR = 10


def cast_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with float16 weights and activations, and float32 inputs and outputs."""
    cast = OnnxModel(convert_float_to_float16(model, keep_io_types=True))
    cast.topological_sort()  # the converter appends its Cast nodes
    return cast.model


def cast_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with bfloat16 weights and activations, and float32 inputs and outputs, in a newer opset.

    The casts are at the places that `cast_float16` chooses. The weights are rounded from their float32 values.

    Raises:
        ComponentError: If the model contains float16 already, or cannot be converted to the opset.
    """
    if any(tensor.data_type == TensorProto.FLOAT16 for tensor in _tensors(model.graph)):
        received = "bfloat16 of a model with float16 in it"
        raise ComponentError(received, "a float32 model", "pass the model from before it was cast")
    model = raise_opset(model, BFLOAT_OPSET, "bfloat16", "choose float16")
    floats = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    cast = cast_float16(model)
    for tensor in _tensors(cast.graph):
        if tensor.data_type == TensorProto.FLOAT16:
            values = floats.get(tensor.name, numpy_helper.to_array(tensor)).astype("float32")
            tensor.CopyFrom(numpy_helper.from_array(values.astype(ml_dtypes.bfloat16), tensor.name))
    for graph in subgraphs(cast.graph):
        for info in [*graph.value_info, *graph.input, *graph.output]:
            if info.type.tensor_type.elem_type == TensorProto.FLOAT16:
                info.type.tensor_type.elem_type = TensorProto.BFLOAT16
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT16:
                    attribute.i = TensorProto.BFLOAT16
    cast.ir_version = max(cast.ir_version, BFLOAT_IR)
    return cast


def raise_opset(model: onnx.ModelProto, opset: int, precision: str, fix: str) -> onnx.ModelProto:
    """Return the model in this opset or a later one, which the precision needs.

    Raises:
        ComponentError: If the model cannot be converted to the opset; with the advice ``fix``.
    """
    if model.opset_import[0].version >= opset:
        return model
    try:
        return version_converter.convert_version(model, opset)
    except Exception as error:  # its exceptions share no base
        received = f"{precision} needs opset {opset}: {first_line(error)[:200]}"
        raise ComponentError(received, "a graph that ONNX can convert to that opset", fix) from error


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield the stored tensors: initializers, and the values of Constant nodes."""
    for part in subgraphs(graph):
        yield from part.initializer
        for node in part.node:
            yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
