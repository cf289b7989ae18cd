"""OpenVINO's own converter, with its errors in words, and what a graph of it consists of."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError, first_line
from tfopt.runtimes.openvino_import import openvino, untracked

LAYERS = ("Convolution", "ConvolutionBackpropData", "GroupConvolution", "GroupConvolutionBackpropData", "MatMul")
ENDS = ("Constant", "Parameter", "Result")
ROUNDED = "FakeQuantize"
MOVES = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "Concat", "Pad")  # and leave what is rounded so


def check_no_text(specs: Mapping[str, TensorSpec]) -> None:
    """Raise ComponentError where a signature has text, for which OpenVINO has no kernels."""
    for name, spec in specs.items():
        if spec.dtype == "string":
            raise ComponentError(
                f"{name!r}: {spec}",
                "numbers in and out, which is all that OpenVINO has kernels for",
                "look words up before the model, or choose export_onnx, which takes text",
            )


def convert(source: Path) -> Any:
    """Return the ``openvino.Model`` of a SavedModel's ``serving_default`` or of an ONNX file, under its names.

    Raises:
        ComponentError: When an op cannot be converted; the ops are named.
    """
    try:
        with untracked():
            model = openvino.convert_model(str(source))
    except Exception as error:  # its exceptions share no base
        raise _refusal(error) from error
    model.set_rt_info("", ["conversion_parameters", "input_model"])  # a path of this machine, and of this run
    return model


def save(model: Any, file: Path, *, halved: bool) -> None:
    """Write ``model.xml`` and ``model.bin``; with ``halved`` what is float32 is stored as float16, where it fits."""
    openvino.save_model(model, file, compress_to_fp16=halved)


def ops_of(model: Any) -> dict[str, int]:
    """How many ops of each kind there are, without what goes in and out."""
    kinds = Counter(op.get_type_name() for op in model.get_ops())
    return {kind: count for kind, count in sorted(kinds.items()) if kind not in ENDS}


def layers_in_8_bits(model: Any) -> list[str]:
    """The names of the convolutions and products whose activations are rounded to 8 bits."""
    return [op.get_friendly_name() for op in model.get_ops() if op.get_type_name() in LAYERS and _is_rounded(op)]


def has_attention(model: Any) -> bool:
    """Whether a softmax weighs what a product then adds up."""
    kinds = {op.get_type_name() for op in model.get_ops()}
    softmaxes = [op for op in model.get_ops() if op.get_type_name() == "Softmax"]
    return "ScaledDotProductAttention" in kinds or any(
        reader.get_type_name() in ("MatMul", "Einsum") for op in softmaxes for reader in _readers(op)
    )


def _is_rounded(op: Any) -> bool:
    return any(_origin(end.get_source_output().get_node()).get_type_name() == ROUNDED for end in op.inputs())


def _origin(node: Any) -> Any:
    """What a value was before it was only moved."""
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


def _refusal(error: Exception) -> ComponentError:
    unknown = re.search(r"No conversion rule found for operations: (.+)", str(error))
    if unknown:
        return ComponentError(
            f"ops that OpenVINO cannot convert: {unknown[1].strip()}",
            "a model of ops that can be converted",
            "express them with other ops in the model, or choose export_onnx or export_tflite",
        )
    said = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
    return ComponentError(
        f"the converter failed: {(said[-1] if said else first_line(error))[:300]}",
        "a model that OpenVINO can convert",
        "check that the model runs (tfopt inspect_model), or convert its ONNX form",
    )
