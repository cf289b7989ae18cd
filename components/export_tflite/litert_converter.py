"""LiteRT's converter: its options for each precision, with readable errors, and SavedModels that it can take."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated
from tensorflow.lite.python.convert import mlir_quantize
from tensorflow.lite.tools.flatbuffer_utils import convert_object_to_bytearray

from tfopt.artifacts import SavedModel
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.artifacts.saved_model_proto import asset_files, read_meta_graph
from tfopt.components.export_tflite.flatbuffer import has_lost_weights
from tfopt.components.export_tflite.parameters import TFLiteConversion
from tfopt.conversion.activation_ranges import Range
from tfopt.data.batches import Batch
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.graph import law_runner
from tfopt.graph.report import Report
from tfopt.saved_models.list_sizes import fix_list_sizes
from tfopt.saved_models.saved_model import opened, write
from tfopt.saved_models.state import check_stateless

OPS = tf.lite.OpsSet
# The ops, and the dtype of integer inputs and outputs. Ops without an integer kernel stay in float, and are counted.
INTEGER = {
    "int8": (OPS.TFLITE_BUILTINS_INT8, tf.int8),
    "int16x8": (OPS.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8, tf.int16),
}

# For a batch size of 1: the state of a loop begins with zeros for each record, whose number becomes a constant.
PASSES = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants")

REPORT = "report this with the model"
# The types for which LiteRT has few kernels, by their names in MLIR.
_TYPES = {"f64": "float64", "f16": "float16", "bf16": "bfloat16", "complex<f32>": "complex64", "i8": "int8"}
_TYPES |= {"ui8": "uint8", "i16": "int16", "ui16": "uint16", "ui32": "uint32", "ui64": "uint64"}
# operations of TensorFlow that LiteRT has by another name, written as those of LiteRT without underscores
_RENAMED = {
    "MATMUL",
    "SIGMOID",
    "REALDIV",
    "CONCAT",
    "MAX",
    "MIN",
    "PROD",
    "ALL",
    "ANY",
    "BIASADD",
    "AVGPOOL",
    "MAXPOOL",
}
_RENAMED |= {"DEPTHWISECONV2DNATIVE", "CONV2DBACKPROPINPUT"}


class OpenListError(ComponentError):
    """The elements of a loop's lists have an open batch size."""


def convert(
    saved_model: Path, parameters: TFLiteConversion, feed: list[Batch] | None, *, only_calibrate: bool = False
) -> bytes:
    """Return the flatbuffer of a SavedModel's ``serving_default``; of a Keras object the converter may drop weights.

    ``feed`` has real inputs to calibrate on, for the integer precisions; it is None if the ranges were trained. With
    ``only_calibrate`` the file stays in float, and has the range of each activation. The converter loses variables
    that it does not find, such as those of a Keras 3 model in a ``tf.Module``: the model is then frozen first.

    Raises:
        ComponentError: If an op cannot be converted; the ops are named.
    """
    _check_assets(saved_model)
    if feed is not None:  # the calibrator crashes on variables that are written
        check_stateless(saved_model, "a file with calibrated ranges", "choose float32, float16, dynamic or int4")
    converter = tf.lite.TFLiteConverter.from_saved_model(str(saved_model), signature_keys=["serving_default"])
    ops = [OPS.TFLITE_BUILTINS]
    if parameters.precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if parameters.sparse:
        converter.optimizations = [*converter.optimizations, tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    if parameters.precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if feed is not None:
        ops.insert(0, INTEGER[parameters.precision][0])
        # The calibrator takes texts in arrays of objects for other ones.
        converter.representative_dataset = lambda: (
            {name: array.astype(np.bytes_) if array.dtype.kind == "O" else array for name, array in batch.items()}
            for batch in feed
        )
    if parameters.integer_io:
        converter.inference_input_type = converter.inference_output_type = INTEGER[parameters.precision][1]
    if parameters.select_tf_ops:
        ops.append(OPS.SELECT_TF_OPS)
    converter.target_spec.supported_ops = ops
    converter._experimental_calibrate_only = only_calibrate
    try:
        content = bytes(converter.convert())
        has_weights = not has_lost_weights(content)
    except Exception as error:
        has_weights = "(READ_VARIABLE) failed" not in str(error)  # the calibrator runs the file
        if has_weights:
            raise _conversion_error(error, parameters, saved_model) from error
    if has_weights:
        return content
    with tempfile.TemporaryDirectory(prefix="tfopt-") as folder, opened(SavedModel(saved_model)) as frozen:
        write(frozen, Path(folder))
        return convert(Path(folder), parameters, feed, only_calibrate=only_calibrate)


def quantize(
    calibrated: bytes,
    ranges: Mapping[str, Range],
    parameters: TFLiteConversion,
    saved_model: Path,
    *,
    dense_channels: bool = True,
    in_float: Sequence[str] = (),
) -> bytes:
    """Return the int8 form of a float flatbuffer that has ranges, after replacing some.

    LiteRT's own range of a tensor to which an op adds in place is that of the sum, as at the end of residual blocks.
    ``dense_channels`` gives each channel of a dense layer a scale of its own. ``in_float`` are the ops to leave in
    float, each by the name of its first output.

    Raises:
        ComponentError: If an op cannot be quantized; the ops are named.
    """
    file = schema_py_generated.ModelT.InitFromPackedBuf(calibrated, 0)
    for tensor in [tensor for tensor in file.subgraphs[0].tensors if tensor.quantization is not None]:
        quantization = tensor.quantization
        if (name := tensor.name.decode()) in ranges:
            quantization.min, quantization.max = ([np.float32(end)] for end in ranges[name])
        elif quantization.min is not None and not np.isfinite([*quantization.min, *quantization.max]).all():
            quantization.min = quantization.max = None  # the quantizer would crash
    dtype = INTEGER["int8"][1] if parameters.integer_io else tf.float32
    try:
        return bytes(
            mlir_quantize(
                bytes(convert_object_to_bytearray(file)),
                input_data_type=dtype,
                output_data_type=dtype,
                denylisted_nodes=list(in_float),
                disable_per_channel_for_dense_layers=not dense_channels,
            )
        )
    except Exception as error:
        raise _conversion_error(error, parameters, saved_model) from error


def _check_assets(saved_model: Path) -> None:
    """Raise ComponentError if a file's name is fed to the graph, as in what tfopt wrote: the converter crashes."""
    meta_graph = read_meta_graph(saved_model)
    names = {asset.tensor_info.name.partition(":")[0] for asset in asset_files(meta_graph)}
    if any(node.op == "Placeholder" and node.name in names for node in meta_graph.graph_def.node):
        received = "lookup tables whose content is in a file, in a model that a component made or of another signature"
        expected = "tables with their content in the graph, or the default signature of the original model"
        raise ComponentError(received, expected, "convert the original model, or create the table from constants")


def convert_float(saved_model: Path, parameters: TFLiteConversion) -> bytes:
    """Return the float32 flatbuffer; see `convert`."""
    return convert(saved_model, replace(parameters, precision="float32", integer_io=False, sparse=False), None)


def write_with_batch_of_one(model: SavedModel, folder: Path) -> None:
    """Write ``serving_default`` of a model with an open batch size as a frozen SavedModel with a batch size of 1.

    LiteRT must know the sizes of the elements of a loop's lists. Its own LSTM, which its converter makes of layers of
    Keras 2 with a known batch size, is no replacement: it begins a call with the state that the last call left, and
    servers do not reset it.
    """
    with opened(model) as frozen:
        signature = frozen.signatures[SERVING_DEFAULT]
        inputs = {name: replace(end, shape=(1, *(end.shape or ())[1:])) for name, end in signature.inputs.items()}
        fixed = replace(frozen, signatures={SERVING_DEFAULT: replace(signature, inputs=inputs)})
        placeholders = {end.node for end in inputs.values()}
        for node in fixed.graph.node:
            if node.name in placeholders:
                node.attr["shape"].shape.dim[0].size = 1
        fixed = law_runner.optimize(fixed, PASSES, Report())
        fix_list_sizes(fixed.graph)
        write(fixed, folder)


def _conversion_error(error: Exception, parameters: TFLiteConversion, saved_model: Path) -> ComponentError:
    message = str(error)
    custom, select = _op_names(message, "Custom ops"), _op_names(message, "TF Select ops")
    no_kernel = sorted(set(re.findall(r"not yet supported for op: '(\w+)'", message)))
    expected = "a model of ops that LiteRT has"
    if custom:
        received = f"ops that neither LiteRT nor TF Select has: {', '.join(custom)}"
        return ComponentError(received, expected, "express them with other ops in the model")
    if select and not parameters.select_tf_ops:
        types = {op: sorted(_other_types(message, op)) for op in select}
        names = [f"{op} ({', '.join(types[op])})" if types[op] else op for op in select]
        kinds = set().union(*types.values())
        castable = all(types.values()) and "complex64" not in kinds
        fix = "cast their inputs to float32 or int32 in the model" if castable else "express them with other ops"
        if castable and kinds <= {"float16", "bfloat16"}:
            fix = "export the model from before cast_precision (precision=float16 stores its weights in 16 bits)"
        return ComponentError(
            f"ops that LiteRT lacks: {', '.join(names)}",
            expected,
            f"{fix}, or pass --select-tf-ops (select_tf_ops=True) if the Flex delegate is linked in where it will run",
        )
    if "TensorList" in message and "element_shape" in message:
        return OpenListError(
            "loops over lists, as of recurrent layers, whose elements have open sizes",
            "elements of known sizes; a batch size of 1 is tried, but LiteRT does not calibrate such loops in integers",
            "choose float32, float16, dynamic or int4, or export the layer with unroll=True for a fixed length",
        )
    received = f"the converter failed: {first_line(error)[:300]}"
    if no_kernel:
        received = f"ops without a {parameters.precision} kernel: {', '.join(no_kernel)}"
    return ComponentError(
        received,
        f"a model that converts to {parameters.precision}",
        "choose float32, to which it converts" if _converts_to_float(saved_model, parameters) else REPORT,
    )


def _converts_to_float(saved_model: Path, parameters: TFLiteConversion) -> bool:
    """Return whether the model can be converted to float32, where another precision was requested."""
    if parameters.precision == "float32":
        return False
    try:
        convert_float(saved_model, parameters)
    except ComponentError:
        return False
    return True


def _other_types(message: str, op: str) -> set[str]:
    """Return the types in which an op is used and LiteRT lacks it; empty if LiteRT lacks the op in every type."""
    builtin = re.sub(r"V\d+$", "", op).upper()
    if builtin not in _RENAMED | {name.replace("_", "") for name in vars(schema_py_generated.BuiltinOperator)}:
        return set()
    uses = re.findall(rf"^\s*tf\.{op}\((.*?)\) ->", message, re.MULTILINE)
    types = {name for use in uses for name in re.findall(r"tensor<(?:[\d?*]+x)*([a-z]+\d+|complex<f32>)>", use)}
    return {_TYPES[name] for name in types & set(_TYPES)}


def _op_names(message: str, heading: str) -> list[str]:
    match = re.search(rf"^{heading}: (.+)$", message, re.MULTILINE)
    return sorted(name.strip() for name in match[1].split(",")) if match else []
