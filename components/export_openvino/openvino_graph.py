"""OpenVINO's converter with readable errors, and queries on its graphs."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.runtimes.openvino_import import openvino, without_telemetry

LAYERS = ("Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul")
ENDS = ("Constant", "Parameter", "Result")
FAKE_QUANTIZE = "FakeQuantize"
# keep quantized values quantized
MOVES = ("Reshape", "StridedSlice", "Slice", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "Concat", "Pad")


def check_no_strings(specs: Mapping[str, TensorSpec]) -> None:
    """Raise ComponentError if an input or output is a string, for which OpenVINO has no kernels."""
    for name, spec in specs.items():
        if spec.dtype == "string":
            expected = "numeric inputs and outputs; OpenVINO has kernels for nothing else"
            raise ComponentError(f"{name!r}: {spec}", expected, "look words up before the model")


def convert(source: Path) -> Any:
    """Return the ``openvino.Model`` of a SavedModel's ``serving_default`` or of an ONNX file, with its names.

    Raises:
        ComponentError: If an op cannot be converted; the ops are named.
    """
    try:
        with without_telemetry():
            model = openvino.convert_model(str(source))
    except Exception as error:  # its exceptions share no base
        raise _conversion_error(error) from error
    model.set_rt_info("", ["conversion_parameters", "input_model"])  # else a path of this machine and run
    return model


def count_ops(model: Any) -> dict[str, int]:
    """Return the number of ops of each type, without constants, parameters and results."""
    types = Counter(op.get_type_name() for op in model.get_ops())
    return {name: count for name, count in sorted(types.items()) if name not in ENDS}


def written_size(model: Any) -> int:
    """Return the size of the files of a model, as they are written."""
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder:
        openvino.save_model(model, Path(folder, "model.xml"), compress_to_fp16=False)
        return sum(file.stat().st_size for file in Path(folder).iterdir())


def int8_layers(model: Any) -> list[str]:
    """Return the names of the convolutions and matrix products whose activations are quantized to 8 bits."""
    return [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() in LAYERS and _is_quantized(op)]


def has_attention(model: Any) -> bool:
    """Return True if the result of a softmax is a factor of a matrix product."""
    types = {op.get_type_name() for op in model.get_ops()}
    softmaxes = [op for op in model.get_ops() if op.get_type_name() == "Softmax"]
    return "ScaledDotProductAttention" in types or any(
        reader.get_type_name() in ("MatMul", "Einsum") for op in softmaxes for reader in _readers(op)
    )


def _is_quantized(op: Any) -> bool:
    return any(_origin(end.get_source_output().get_node()).get_type_name() == FAKE_QUANTIZE for end in op.inputs())


def _origin(node: Any) -> Any:
    while node.get_type_name() in MOVES:
        node = node.input(0).get_source_output().get_node()
    return node


def _readers(node: Any) -> Iterator[Any]:
    for target in node.output(0).get_target_inputs():
        reader = target.get_node()
        if reader.get_type_name() in MOVES:
            yield from _readers(reader)
        else:
            yield reader


def _conversion_error(error: Exception) -> ComponentError:
    unknown = re.search(r"(?:No conversion rule found for operations|Conversion is failed for): (.+)", str(error))
    if unknown:
        received = f"ops that OpenVINO cannot convert: {unknown[1].strip()}"
        expected = "a model of ops that can be converted"
        return ComponentError(received, expected, "express them with other ops in the model")
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
    received = f"the converter failed: {(lines[-1] if lines else first_line(error))[:300]}"
    expected = "a model that OpenVINO can convert"
    return ComponentError(received, expected, "check that the file is complete, and report this with the model")
