"""Triton's `config.pbtxt`, next to the versions of a model, generated from the model's signature.

Reference: NVIDIA Triton Inference Server, "Model Configuration" (`inference.ModelConfig`).
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.models import SERVING_DEFAULT
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.processes.subprocess_call import run_isolated
from tfopt.serving.triton_scheduler import Scheduling
from tfopt.storage import staging
from tfopt.tensorrt.tag import CompatibilityTag

FILE = "config.pbtxt"
HEADER = "# Written by tfopt push_model from the signature. Without this line the file is yours, and stays as it is.\n"
TYPES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}
TYPES |= {f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
TYPES |= {"string": "STRING"}


def write_config(model: Model, folder: Path, scheduling: Scheduling) -> None:
    """Write the configuration into the folder of a model, by one rename; see `make_config`."""
    target = folder / FILE
    previous = target.read_text() if target.exists() else None
    text = make_config(model, folder.name, previous, scheduling)
    if text != previous:  # a server that watches the file would load the model again
        staging.replace_file(target, text.encode())


def make_config(
    model: Model,
    name: str,
    previous: str | None,
    scheduling: Scheduling,
    parameters: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the content of ``config.pbtxt``; a previous one without `HEADER`, which a user wrote, stays.

    ``name`` is that of the folder of versions, and of the model in Triton. ``parameters`` are texts that Triton returns
    with the configuration.

    Raises:
        ComponentError: If Triton cannot express the signature.
    """
    if previous is not None and not previous.startswith(HEADER):
        return previous
    specs = run_isolated(_read_signature, model, doing="reading the signature")
    max_batch_size = min(scheduling.max_batch_size, largest_batch(model) or scheduling.max_batch_size)
    config = config_text(name, model.format, *specs, replace(scheduling, max_batch_size=max_batch_size))
    if model.format == "saved_model" and model.signature != SERVING_DEFAULT:
        parameters = {**parameters, "TF_SIGNATURE_DEF": model.signature}  # of Triton's TensorFlow backend
    entries = (
        f"parameters {{ key: {_quoted(key)} value {{ string_value: {_quoted(text)} }} }}\n"
        for key, text in parameters.items()
    )
    return HEADER + config + "".join(entries)


def _read_signature(model: Model) -> tuple[dict[str, TensorSpec], dict[str, TensorSpec]]:
    with runtimes.load(model) as runtime:
        return runtime.inputs, runtime.outputs


def largest_batch(model: Model) -> int | None:
    """Return the largest batch of a model; None if there is no limit, or an engine's tag does not contain it.

    Triton does not load an engine whose configuration exceeds its optimization profile.
    """
    tag = CompatibilityTag.read(model.tensorrt) if model.tensorrt else None
    return tag.largest_batch if tag else None


def config_text(
    name: str, format: str, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], scheduling: Scheduling
) -> str:
    """Return the configuration as text; requests are batched only if every tensor has an open batch axis."""
    batched = all(spec.shape and spec.shape[0] is None for spec in [*inputs.values(), *outputs.values()])
    for side in (inputs, outputs):
        for tensor, spec in side.items():
            if not spec.ranked or spec.dtype not in TYPES or not (batched or spec.shape):
                expected = f"a known number of axes, at least one, and one of the types {', '.join(TYPES)}"
                fix = "export the model with such a signature, or write config.pbtxt yourself"
                raise ComponentError(f"push_model: layout=triton, {tensor!r} is {spec}", expected, fix)
    delay = f"max_queue_delay_microseconds: {scheduling.queue_delay_us} " if scheduling.queue_delay_us else ""
    backend = FORMATS[format].triton
    assert backend
    lines = [
        f"name: {_quoted(name)}",
        backend.config_line,
        f"max_batch_size: {scheduling.max_batch_size if batched else 0}",
        *(_tensor("input", tensor, spec, batched) for tensor, spec in inputs.items()),
        *(_tensor("output", tensor, spec, batched) for tensor, spec in outputs.items()),
        f"instance_group {{ count: {scheduling.instances} kind: KIND_{scheduling.device.upper()} }}",
        *([f"dynamic_batching {{ {delay}}}"] if batched else []),
    ]
    return "\n".join(lines) + "\n"


def _tensor(side: str, name: str, spec: TensorSpec, batched: bool) -> str:
    sizes = [-1 if size is None else size for size in (spec.shape[1:] if batched else spec.shape)]
    # Triton has no scalar examples: it takes shape [1] per example and removes that axis for the model.
    dims = f"dims: {sizes}" if sizes else "dims: [1] reshape { shape: [] }"
    return f"{side} {{ name: {_quoted(name)} data_type: TYPE_{TYPES[spec.dtype]} {dims} }}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
