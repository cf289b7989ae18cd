"""The `config.pbtxt` that Triton wants beside the versions, written from the model's signature.

Reference: NVIDIA Triton Inference Server, "Model Configuration" (`inference.ModelConfig`).
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.artifacts import staging as partial
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.errors import ComponentError
from tfopt.tensorrt.tag import Tag

FILE = "config.pbtxt"
OURS = "# Written by tfopt push_model from the signature. Without this line the file is yours, and stays as it is.\n"
BACKENDS = {
    "saved_model": "platform: \"tensorflow_savedmodel\"",
    "onnx": "backend: \"onnxruntime\"",
    "openvino": "backend: \"openvino\"",
    "tensorrt": "platform: \"tensorrt_plan\"",
}  # fmt: skip
TYPES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}
TYPES |= {f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
TYPES |= {"string": "STRING"}


@dataclass(frozen=True)
class Scheduling:
    """How Triton is to run the model.

    Attributes:
        max_batch_size: Up to how many requests are run at once, where the signature leaves the batch open.
        instances: How many copies of the model run side by side, on each device.
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``gpu``.
        queue_delay_us: How long a request may wait for others to be batched with, in microseconds.
    """

    max_batch_size: int = 64
    instances: int = 1
    device: str = "auto"
    queue_delay_us: int = 0


@contextlib.contextmanager
def configured(model: Model, folder: Path, scheduling: Scheduling, said: Mapping[str, str]) -> Iterator[None]:
    """`write_config`; where what follows then fails, what was there before is put back."""
    target = folder / FILE
    before = target.read_text() if target.exists() else None
    write_config(model, folder, scheduling, said)
    try:
        yield
    except BaseException:
        if before is None:
            target.unlink(missing_ok=True)
        elif before != target.read_text():
            _put(target, before)
        raise


def write_config(
    model: Model, folder: Path, scheduling: Scheduling, said: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write ``config.pbtxt`` into the folder of a model, by one rename; one that somebody else wrote stays.

    Args:
        model: In a format of `BACKENDS`, of which the signature ``serving_default`` is served.
        folder: Holds the versions; Triton calls the model as it is called.
        scheduling: How it is run.
        said: What travels with it as ``parameters``, which Triton hands to whoever asks for the configuration.

    Raises:
        ComponentError: When the signature has something that Triton has no words for.
    """
    target = folder / FILE
    there = target.read_text() if target.exists() else OURS
    if not there.startswith(OURS):
        return
    with runtimes.load(model) as runtime:
        most = min(scheduling.max_batch_size, largest_batch(model) or scheduling.max_batch_size)
        scheduling = replace(scheduling, max_batch_size=most)
        text = config(folder.name, model.format, runtime.inputs, runtime.outputs, scheduling)
    text = (
        OURS
        + text
        + "".join(
            f"parameters {{ key: {_quoted(k)} value {{ string_value: {_quoted(v)} }} }}\n" for k, v in said.items()
        )
    )
    if text == there:  # a server that watches would load the model again
        return
    _put(target, text)


def largest_batch(model: Model) -> int | None:
    """The largest batch that a model takes; None for any, or for an engine whose tag does not say it.

    Triton does not load an engine whose configuration asks for more than its profile takes.
    """
    tag = Tag.beside(model.tensorrt) if model.tensorrt else None
    return tag.largest_batch if tag else None


def config(
    name: str, format: str, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], scheduling: Scheduling
) -> str:
    """Return the configuration as text; requests are put together only where every tensor has an open batch."""
    batched = all(spec.shape and spec.shape[0] is None for spec in [*inputs.values(), *outputs.values()])
    for side in (inputs, outputs):
        for tensor, spec in side.items():
            if not spec.ranked or spec.dtype not in TYPES or not (batched or spec.shape):
                raise ComponentError(
                    f"push_model: layout=triton, {tensor!r} is {spec}",
                    f"a known number of axes, at least one, and one of the types {', '.join(TYPES)}",
                    "export the model with such a signature, or write config.pbtxt yourself",
                )
    delay = f"max_queue_delay_microseconds: {scheduling.queue_delay_us} " if scheduling.queue_delay_us else ""
    lines = [
        f"name: {_quoted(name)}",
        BACKENDS[format],
        f"max_batch_size: {scheduling.max_batch_size if batched else 0}",
        *(_tensor("input", tensor, spec, batched) for tensor, spec in inputs.items()),
        *(_tensor("output", tensor, spec, batched) for tensor, spec in outputs.items()),
        f"instance_group {{ count: {scheduling.instances} kind: KIND_{scheduling.device.upper()} }}",
        *([f"dynamic_batching {{ {delay}}}"] if batched else []),
    ]
    return "\n".join(lines) + "\n"


def _put(target: Path, text: str) -> None:
    part = partial.name(target.parent)
    try:
        part.write_text(text)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)


def _tensor(side: str, name: str, spec: TensorSpec, batched: bool) -> str:
    sizes = [-1 if size is None else size for size in (spec.shape[1:] if batched else spec.shape)]
    # Triton knows no example without axes: it takes one number for each, and hands them on without that axis.
    dims = f"dims: {sizes}" if sizes else "dims: [1] reshape { shape: [] }"
    return f"{side} {{ name: {_quoted(name)} data_type: TYPE_{TYPES[spec.dtype]} {dims} }}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
