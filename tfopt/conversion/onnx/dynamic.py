"""Form of an ONNX file with weights in 8 bits, and with ranges of activations that are computed in each call."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process

from tfopt.conversion.conversion_facts import ConversionFacts
from tfopt.conversion.onnx.float_part import name_nodes
from tfopt.conversion.onnx.int8 import find_read_for_shapes, readable_errors
from tfopt.conversion.onnx.quantizer_names import shorten_names
from tfopt.errors import ComponentError

STORED = {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}


def quantize(
    source: Path, folder: Path, *, per_channel: bool, reduce_range: bool
) -> tuple[onnx.ModelProto, ConversionFacts]:
    """Return the dynamic form of a float32 file, and metadata for the model card.

    ONNX Runtime's quantizer replaces products with stored matrices (MatMulInteger), LSTMs (DynamicQuantizeLSTM) and
    lookups in stored tables. Convolutions compute in float with weights that are stored in 8 bits: its ConvInteger
    takes several times as long. Layers in the bodies of loops and branches stay in float. The ``folder`` is for
    temporary files.

    Raises:
        ComponentError: If the quantizer fails or replaces nothing.
    """
    prepared, target = folder / "prepared.onnx", folder / "dynamic.onnx"
    with readable_errors():
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        floats = onnx.load(prepared)
        name_nodes(floats.graph)
        onnx.save(floats, prepared)
        options = {"per_channel": per_channel, "reduce_range": reduce_range}
        convolutions = [node.name for node in floats.graph.node if node.op_type == "Conv"]
        excluded = find_read_for_shapes(floats.graph)
        quantize_dynamic(prepared, target, nodes_to_exclude=[*excluded, *convolutions], **options)
    stored = {tensor.name for tensor in floats.graph.initializer}
    model = onnx.load(target)
    _store_kernels(model.graph, excluded, per_channel)
    if not any(tensor.data_type in STORED and tensor.name not in stored for tensor in model.graph.initializer):
        expected = "a convolution, LSTM, lookup or product of matrices, with stored weights, outside of loops"
        raise ComponentError("a model without a layer that ONNX Runtime computes in 8 bits", expected, "choose float32")
    shorten_names(model)
    return model, {"reduce_range": reduce_range}


def _store_kernels(graph: onnx.GraphProto, excluded: Collection[str], per_channel: bool) -> None:
    """Store the kernels of convolutions in 8 bits, which a DequantizeLinear makes float32 in each call."""
    tensors = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    readers = Counter(name for node in graph.node for name in node.input)
    convolutions = [node for node in graph.node if node.op_type == "Conv" and node.name not in excluded]
    kernels = Counter(node.input[1] for node in convolutions)
    dequantizers = []
    for name in [name for name in kernels if name in tensors and kernels[name] == readers[name]]:
        kernel = onnx.numpy_helper.to_array(tensors[name])
        largest = np.abs(kernel).max(tuple(range(1, kernel.ndim)) if per_channel else None)
        scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        levels = np.rint(kernel / scale.reshape(-1, *[1] * (kernel.ndim - 1))).astype(np.int8)
        arrays = {f"{name}_quantized": levels, f"{name}_scale": scale}
        graph.initializer.remove(tensors[name])
        graph.initializer.extend(onnx.numpy_helper.from_array(array, key) for key, array in arrays.items())
        dequantizers.append(onnx.helper.make_node("DequantizeLinear", [*arrays], [name], f"{name}_float", axis=0))
    nodes = [*dequantizers, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
