"""Comparison of a ``config.pbtxt`` with the model's signature, as Triton does it when it loads a model.

Reference: NVIDIA Triton Inference Server, "Model Configuration" (`inference.ModelConfig`). Only the fields that are
read here are declared. The text format has names instead of field numbers, so other fields can be ignored.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.error_messages import first_line
from tfopt.serving.triton_config import TYPES
from tfopt.storage.protobuf_messages import message_classes

MESSAGES = {
    "Reshape": "repeated int64 shape = 1",
    "Tensor": "string name = 1; DataType data_type = 2; repeated int64 dims = 3; Reshape reshape = 4",
    "ModelConfig": "string name = 1; string platform = 2; string backend = 3; int64 max_batch_size = 4; "
    "repeated Tensor input = 5; repeated Tensor output = 6",
}


def check_config(
    file: Path,
    format: str,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    batch_size: int,
    largest: int | None = None,
) -> list[str]:
    """Return everything that Triton would reject or serve with another signature, one line each.

    Args:
        file: The configuration, in the folder with the name of the model.
        format: The format of the model.
        inputs: The inputs of its signature.
        outputs: The outputs of its signature; Triton may serve a part of them.
        batch_size: Number of examples in a request.
        largest: The largest batch that the model supports, if it has a limit.
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
    sizes = ([-1] if batched else []) + dims
    if spec.ranked and not _fits(sizes, spec.shape):
        yield f"{side} {tensor.name!r} of dims {dims}, where the model has {spec}"


def _fits(sizes: list[int], shape: tuple[int | None, ...]) -> bool:
    # A size that is open on one side may be fixed on the other.
    return len(sizes) == len(shape) and all(
        size == -1 or expected is None or size == expected for size, expected in zip(sizes, shape, strict=True)
    )


def _create_message() -> Any:
    """Create an empty ``ModelConfig`` message with the fields of `MESSAGES`."""
    types = [f"TYPE_{name}" for name in ["INVALID", *TYPES.values()]]
    return message_classes("tfopt.triton", MESSAGES, enums={"DataType": types})["ModelConfig"]()
