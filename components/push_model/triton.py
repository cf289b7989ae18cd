"""The `config.pbtxt` that Triton wants beside the versions, written from the model's signature.

Reference: NVIDIA Triton Inference Server, "Model Configuration" (`inference.ModelConfig`).
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tfopt import runtimes
from tfopt.artifacts import Model
from tfopt.errors import ComponentError
from tfopt.runtimes import TensorSpec

FILE = "config.pbtxt"
OURS = "# Written by tfopt push_model from the signature. Without this line the file is yours, and stays as it is.\n"
BACKENDS = {
    "saved_model": "platform: \"tensorflow_savedmodel\"",
    "onnx": "backend: \"onnxruntime\"",
}  # fmt: skip
TYPES = {"bool": "BOOL", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64"}
TYPES |= {f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
TYPES |= {"string": "STRING"}


def write_config(model: Model, folder: Path, max_batch_size: int) -> None:
    """Write ``config.pbtxt`` into the folder of a model, by one rename; one that somebody else wrote stays.

    Args:
        model: A SavedModel or an ONNX model, of which the signature ``serving_default`` is served.
        folder: Holds the versions; Triton calls the model as it is called.
        max_batch_size: Up to how many requests are run at once, where the signature leaves the batch open.

    Raises:
        ComponentError: When the signature has something that Triton has no words for.
    """
    target = folder / FILE
    if target.exists() and not target.read_text().startswith(OURS):
        return
    with runtimes.load(model) as runtime:
        text = config(folder.name, model.format, runtime.inputs, runtime.outputs, max_batch_size)
    partial = folder / f".{FILE}.partial"
    partial.write_text(OURS + text)
    partial.rename(target)


def config(
    name: str, format: str, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], max_batch_size: int
) -> str:
    """Return the configuration as text; requests are put together only where every tensor has an open batch."""
    specs = [*inputs.values(), *outputs.values()]
    for side in (inputs, outputs):
        for tensor, spec in side.items():
            if not spec.ranked or spec.dtype not in TYPES:
                raise ComponentError(
                    f"push_model: layout=triton, {tensor!r} is {spec}",
                    f"a known number of axes and one of the types {', '.join(TYPES)}",
                    "export the model with such a signature, or write config.pbtxt yourself",
                )
    batched = all(spec.shape and spec.shape[0] is None for spec in specs)
    lines = [
        f"name: {json.dumps(name, ensure_ascii=False)}",
        BACKENDS[format],
        f"max_batch_size: {max_batch_size if batched else 0}",
        *(_tensor("input", tensor, spec, batched) for tensor, spec in inputs.items()),
        *(_tensor("output", tensor, spec, batched) for tensor, spec in outputs.items()),
        "instance_group { count: 1 kind: KIND_AUTO }",
        *(["dynamic_batching { }"] if batched else []),
    ]
    return "\n".join(lines) + "\n"


def _tensor(side: str, name: str, spec: TensorSpec, batched: bool) -> str:
    sizes = [-1 if size is None else size for size in (spec.shape[1:] if batched else spec.shape)]
    # Triton knows no tensor without axes: it takes one number, and hands it on without its axis.
    dims = f"dims: {sizes}" if sizes else "dims: [1] reshape { shape: [] }"
    return f"{side} {{ name: {json.dumps(name, ensure_ascii=False)} data_type: TYPE_{TYPES[spec.dtype]} {dims} }}"
