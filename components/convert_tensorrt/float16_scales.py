"""float16 around the int8 layers of ONNX files: TensorRT computes what is between them in the type of their scales.

    q = round(x / s'),  x' = q s',  x and s' in float16

with s' the smallest float16 that is at least the scale s, so that no value leaves its range. A quantizer and its
dequantizer have the same s', so that its rounding costs no more than a thousandth of the levels.

References: ONNX operators QuantizeLinear-19 and DequantizeLinear-19, the first with scales in float16; TensorRT's
developer guide, "Strongly Typed Networks" (the type of a dequantizer's output is that of its scale).
"""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tfopt.components.convert_tensorrt.int8_scales import QUANTIZERS
from tfopt.conversion.onnx.float16 import cast_float16, raise_opset

OPSET = 19  # the first whose quantizers have float16
IR = 9  # that of the opset


def cast_between_layers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a symmetric int8 model whose other layers, weights and scales are in float16.

    Inputs and outputs stay in float32.

    Raises:
        ComponentError: If the model cannot be converted to the opset that has such quantizers.
    """
    model = raise_opset(model, OPSET, "float16 between int8 layers", "choose int8 or fp16")
    model.ir_version = max(model.ir_version, IR)
    scales = {node.input[1] for node in model.graph.node if node.op_type in QUANTIZERS}
    for tensor in model.graph.initializer:
        if tensor.name in scales:
            values = round_up(numpy_helper.to_array(tensor)).astype(np.float32)  # cast with all other tensors
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return cast_float16(model)


def round_up(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Return the smallest float16 that is at least each value."""
    nearest = values.astype(np.float16)
    return np.where(nearest < values, np.nextafter(nearest, np.float16(np.inf)), nearest)
