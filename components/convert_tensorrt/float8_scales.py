"""float8 (E4M3) quantization of ONNX files, as TensorRT reads it.

    q = float8(clip(x / s, -448, 448)),  x' = q s,  s = m / 448

The places of the quantizers and the largest absolute values m of activations are those of symmetric int8
(`int8_scales`). Weights are rounded from their float32 values: a float8 has 3 bits of mantissa at any magnitude, so
small values are more exact than in int8 and large ones less.

References: Micikevicius et al., FP8 Formats for Deep Learning (2022); ONNX operators QuantizeLinear-19 and
DequantizeLinear-19; TensorRT's developer guide, "Working with Quantized Types" (FP8 has no zero points).
"""

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from tfopt.components.convert_tensorrt.int8_scales import LEVELS, QUANTIZERS
from tfopt.conversion.onnx.float16 import raise_opset
from tfopt.errors import ComponentError

OPSET = 19  # the first whose quantizers have float8
IR = 9  # the first with float8 tensors
LARGEST = 448  # the largest float8 in E4M3
STORED = "_DequantizeLinear_Output_floats"  # what the two quantizers add to the name of a weight
OLDEST_GPU = (8, 9)  # compute capability


def check_capability(capability: str, gpu: str) -> None:
    """Raise ComponentError if a GPU has no products in float8."""
    if tuple(map(int, capability.split("."))) < OLDEST_GPU:
        received = f"precision='fp8' on {gpu} with compute capability {capability}"
        expected = "compute capability 8.9 or later (Ada, Hopper, Blackwell), which has products in float8"
        raise ComponentError(received, expected, "choose int8 or fp16, or run this on such a GPU")


def cast_float8(model: onnx.ModelProto, weights: dict[str, NDArray[np.float32]]) -> onnx.ModelProto:
    """Return a symmetric int8 model in float8, with these float32 ``weights`` instead of those rounded to int8.

    Raises:
        ComponentError: If the model cannot be converted to the opset that has float8.
    """
    model = raise_opset(model, OPSET, "float8", "choose int8")
    model.ir_version = max(model.ir_version, IR)
    quantizers = [node for node in model.graph.node if node.op_type in QUANTIZERS]
    scales, zeros = ({node.input[place] for node in quantizers} for place in (1, 2))
    for tensor in model.graph.initializer:
        if tensor.name in scales:
            values = numpy_helper.to_array(tensor) * np.float32(LEVELS / LARGEST)
        elif tensor.name in zeros:
            values = np.zeros(tensor.dims, ml_dtypes.float8_e4m3fn)
        elif (exact := weights.get(tensor.name.removesuffix(STORED))) is not None and tensor.name.endswith(STORED):
            values = exact.reshape(tensor.dims)
        else:
            continue
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for node in quantizers:
        for attribute in [attribute for attribute in node.attribute if attribute.name == "output_dtype"]:
            node.attribute.remove(attribute)  # the type of the zero point
    del model.graph.value_info[:]  # some entries are int8
    return model
