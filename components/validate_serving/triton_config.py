"""Whether a ``config.pbtxt`` says of the model what the model says of itself, as Triton would ask when it loads it.

Reference: NVIDIA Triton Inference Server, "Model Configuration" (`inference.ModelConfig`). Only the fields that are
read here are declared; a text has names and no numbers, so that others need not be known.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import first_line
from tfopt.serving.triton_config import TYPES

BACKENDS = {
    "saved_model": ("tensorflow_savedmodel", "tensorflow"),
    "onnx": ("onnxruntime_onnx", "onnxruntime"),
    "openvino": ("openvino", "openvino"),
    "tensorrt": ("tensorrt_plan", "tensorrt"),
}
TENSOR = {"name": str, "data_type": TYPES, "dims": [int], "reshape": {"shape": [int]}}
SCHEMA: dict[str, Any] = {
    "name": str,
    "platform": str,
    "backend": str,
    "max_batch_size": int,
    "input": [TENSOR],
    "output": [TENSOR],
}


def faults(
    file: Path,
    format: str,
    inputs: Mapping[str, TensorSpec],
    outputs: Mapping[str, TensorSpec],
    batch_size: int,
    largest: int | None = None,
) -> list[str]:
    """What Triton would refuse, or serve otherwise than the signature says, a line each.

    Args:
        file: The configuration, in the folder that Triton calls the model by.
        format: Of the model.
        inputs: Its signature.
        outputs: Its signature; Triton may serve some of them only.
        batch_size: How many examples a request has.
        largest: The largest batch that the model itself takes, where it has one.
    """
    from google.protobuf import text_format

    try:
        config = text_format.Parse(file.read_text(), _message(), allow_unknown_field=True)
    except text_format.ParseError as error:
        return [f"config.pbtxt: {first_line(error)}"]
    found = []
    if config.name and config.name != file.parent.name:
        found.append(f"config.pbtxt: name {config.name!r} in a folder called {file.parent.name!r}")
    used, known = config.backend or config.platform, BACKENDS[format]
    if used and used not in known:
        found.append(f"config.pbtxt: {used!r} for a model of {known[1]!r}")
    if any(spec.shape and spec.shape[0] is None for spec in inputs.values()) and 0 < config.max_batch_size < batch_size:
        found.append(f"config.pbtxt: max_batch_size {config.max_batch_size}, for requests of {batch_size}")
    if largest and config.max_batch_size > largest:
        found.append(f"config.pbtxt: max_batch_size {config.max_batch_size}, for an engine of batches up to {largest}")
    found += _side("input", config.input, inputs, config.max_batch_size > 0, complete=True)
    found += _side("output", config.output, outputs, config.max_batch_size > 0, complete=False)
    return found


def _side(side: str, told: Any, specs: Mapping[str, TensorSpec], batched: bool, *, complete: bool) -> Iterator[str]:
    names = {tensor.name for tensor in told}
    for name in sorted(names & set(specs)) or specs:
        if batched and not (specs[name].ranked and specs[name].shape[:1] == (None,)):
            yield f"config.pbtxt: max_batch_size above 0, and {side} {name!r} is {specs[name]}, without an open batch"
    if not told:  # Triton then takes all of them from the model
        return
    if unknown := sorted(names - set(specs)):
        yield f"config.pbtxt: {side} {', '.join(unknown)}, where the model has {', '.join(sorted(specs))}"
    if complete and not unknown and (missing := sorted(set(specs) - names)):
        yield f"config.pbtxt: no {side} {', '.join(missing)}"
    for tensor in told:
        spec = specs.get(tensor.name)
        if spec is None:
            continue
        word = type(tensor).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name
        if word != f"TYPE_{TYPES.get(spec.dtype)}":
            yield f"config.pbtxt: {side} {tensor.name!r} of {word}, not TYPE_{TYPES.get(spec.dtype)}"
        dims = list(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
        if not batched and not dims:
            yield f"config.pbtxt: {side} {tensor.name!r} has no axes, which Triton takes of batches only"
        sizes = ([-1] if batched else []) + dims
        if spec.ranked and not _fit(sizes, spec.shape):
            yield f"config.pbtxt: {side} {tensor.name!r} of dims {dims}, where the model has {spec}"


def _fit(sizes: list[int], shape: tuple[int | None, ...]) -> bool:
    """A size that is open on one side may be fixed on the other."""
    return len(sizes) == len(shape) and all(
        size == -1 or want is None or size == want for size, want in zip(sizes, shape, strict=True)
    )


def _message() -> Any:
    """An empty ``ModelConfig`` with the fields of `SCHEMA`."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="tfopt_model_config.proto", package="tfopt.triton", syntax="proto3")
    words = file.enum_type.add(name="DataType")
    for number, word in enumerate(["INVALID", *TYPES.values()]):
        words.value.add(name=f"TYPE_{word}", number=number)
    _declare(file, "ModelConfig", SCHEMA)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tfopt.triton.ModelConfig"))()


def _declare(file: Any, name: str, fields: Mapping[str, Any]) -> None:
    kinds = {str: "TYPE_STRING", int: "TYPE_INT64"}
    if any(message.name == name for message in file.message_type):
        return
    message = file.message_type.add(name=name)
    for number, (key, kind) in enumerate(fields.items(), 1):
        field = message.field.add(name=key, number=number)
        field.label = field.LABEL_REPEATED if isinstance(kind, list) else field.LABEL_OPTIONAL
        one = kind[0] if isinstance(kind, list) else kind
        if one is TYPES:
            field.type, field.type_name = field.TYPE_ENUM, ".tfopt.triton.DataType"
        elif isinstance(one, dict):
            inner = "Tensor" if one is TENSOR else key.capitalize()
            field.type, field.type_name = field.TYPE_MESSAGE, f".tfopt.triton.{inner}"
            _declare(file, inner, one)
        else:
            field.type = getattr(field, kinds[one])
