"""Form of an ONNX file with weights in 8 bits, and with ranges of activations that are computed in each call."""

from pathlib import Path

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

    ONNX Runtime's quantizer replaces products with stored matrices (MatMulInteger), convolutions (ConvInteger), LSTMs
    (DynamicQuantizeLSTM) and lookups in stored tables. Those in the bodies of loops and branches stay in float. The
    ``folder`` is for temporary files.

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
        quantize_dynamic(prepared, target, nodes_to_exclude=find_read_for_shapes(floats.graph), **options)
    stored = {tensor.name for tensor in floats.graph.initializer}
    model = onnx.load(target)
    if not any(tensor.data_type in STORED and tensor.name not in stored for tensor in model.graph.initializer):
        expected = "a convolution, LSTM, lookup or product of matrices, with stored weights, outside of loops"
        raise ComponentError("a model without a layer that ONNX Runtime computes in 8 bits", expected, "choose float32")
    shorten_names(model)
    return model, {"reduce_range": reduce_range}
