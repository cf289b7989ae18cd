"""Comparison of a ``config.pbtxt`` with the model's signature, as Triton does it when it loads a model.

Reference: NVIDIA Triton Inference Server, "Model Configuration" (`inference.ModelConfig`). Only the fields that are
read here are declared. The text format has names instead of field numbers, so other fields can be ignored.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.validate_serving.output_check import are_compatible
from tfopt.components.validate_serving.parameters import ServingTest
from tfopt.error_messages import first_line
from tfopt.runtimes import Runtime
from tfopt.serving import triton_config
from tfopt.serving.triton_config import TYPES
from tfopt.serving.triton_scheduler import Scheduling
from tfopt.storage.protobuf_messages import message_classes

MESSAGES = {
    "Reshape": "repeated int64 shape = 1",
    "Tensor": "string name = 1; DataType data_type = 2; repeated int64 dims = 3; Reshape reshape = 4",
    "ModelConfig": "string name = 1; string platform = 2; string backend = 3; int64 max_batch_size = 4; "
    "repeated Tensor input = 5; repeated Tensor output = 6",
}


def check_folder(model: Model, root: Path, expected: Runtime, test: ServingTest) -> list[str]:
    """Write the configuration that `push_model` would write, or the user's at the destination, and check it."""
    file = root / triton_config.FILE
    own = Path(test.destination, file.name) if test.destination else None
    if own and own.is_file() and not (text := own.read_text()).startswith(triton_config.HEADER):
        file.write_text(text)
    else:
        triton_config.write_config(model, root, Scheduling(test.max_batch_size))
    largest = triton_config.largest_batch(model)
    return check_config(file, model.format, expected.inputs, expected.outputs, test.batch_size, largest)


def check_config(
    file: Path,
    format: str,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    batch_size: int,
    largest: int | None = None,
) -> list[str]:
    """Return everything that Triton would reject or serve with another signature, one line each.

    The configuration is in the folder with the name of the model. Triton may serve a part of the outputs. The largest
    batch of the model, if it has a limit, is ``largest``, that of a request ``batch_size``.
    """
    from google.protobuf import text_format

    try:
        config = text_format.Parse(file.read_text(), _create_message(), allow_unknown_field=True)
    except text_format.ParseError as error:
        return [f"config.pbtxt: {first_line(error)}"]
    faults = []
    if config.name and config.name != file.parent.name:
        faults.append(f"name {config.name!r} in a folder called {file.parent.name!r}")
    configured, expected = config.backend or config.platform, FORMATS[format].triton
    assert expected
    if configured and configured not in (expected.platform, expected.backend):
        faults.append(f"{configured!r} for a model of {expected.backend!r}")
    if any(spec.shape and spec.shape[0] is None for spec in inputs.values()) and 0 < config.max_batch_size < batch_size:
        faults.append(f"max_batch_size {config.max_batch_size}, for requests of {batch_size}")
    if largest and config.max_batch_size > largest:
        faults.append(f"max_batch_size {config.max_batch_size}, for an engine of batches up to {largest}")
    faults += _check_side("input", config.input, inputs, config.max_batch_size > 0, complete=True)
    faults += _check_side("output", config.output, outputs, config.max_batch_size > 0, complete=False)
    return [f"config.pbtxt: {fault}" for fault in faults]


def _check_side(
    side: str, tensors: Any, specs: Mapping[str, TensorSpec], batched: bool, *, complete: bool
) -> Iterator[str]:
    names = {tensor.name for tensor in tensors}
    for name in sorted(names & set(specs)) or specs:
        if batched and not (specs[name].ranked and specs[name].shape[:1] == (None,)):
            yield f"max_batch_size above 0, and {side} {name!r} is {specs[name]}, without an open batch"
    if not tensors:  # Triton then reads all of them from the model
        return
    if unknown := sorted(names - set(specs)):
        yield f"{side} {', '.join(unknown)}, where the model has {', '.join(sorted(specs))}"
    if complete and not unknown and (missing := sorted(set(specs) - names)):
        yield f"no {side} {', '.join(missing)}"
    for tensor in tensors:
        if tensor.name in specs:
            yield from _check_tensor(side, tensor, specs[tensor.name], batched)


def _check_tensor(side: str, tensor: Any, spec: TensorSpec, batched: bool) -> Iterator[str]:
    dtype = type(tensor).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name
    if dtype != f"TYPE_{TYPES.get(spec.dtype)}":
        yield f"{side} {tensor.name!r} of {dtype}, not TYPE_{TYPES.get(spec.dtype)}"
    dims = list(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    if not batched and not dims:
        yield f"{side} {tensor.name!r} has no axes, which Triton supports for batches only"
    sizes = [None if size == -1 else size for size in ([-1] if batched else []) + dims]
    if not are_compatible(spec, TensorSpec(spec.dtype, tuple(sizes))):
        yield f"{side} {tensor.name!r} of dims {dims}, where the model has {spec}"


def _create_message() -> Any:
    types = [f"TYPE_{name}" for name in ["INVALID", *TYPES.values()]]
    return message_classes("tfopt.triton", MESSAGES, enums={"DataType": types})["ModelConfig"]()
