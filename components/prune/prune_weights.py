"""Prune the weights of a model, fine-tune it, save it, compare it with its baseline, and report each layer.

For each layer the report contains whether a runtime can be faster with its zeros, or the reason why not.

References:
    XNNPACK's delegate, "Sparse inference" in its README: 1x1 convolutions of a network that starts with a 3x3
    convolution of stride 2 on 3 channels. TensorRT, "Working with structured sparsity": 2:4 along the input channels.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfopt.artifacts import Examples, KerasModel, Model
from tfopt.components.prune.kernels import TRANSPOSED, check_not_shrunk, find_kernels, input_axis
from tfopt.components.prune.masked_training import Masks, fine_tune
from tfopt.components.prune.parameters import Settings
from tfopt.keras_models.kernels import Kernel, report_row, table_lines
from tfopt.keras_models.weight_constraints import is_n_m
from tfopt.measurement import parity
from tfopt.training.fine_tuner import FineTuner
from tfopt.training.fine_tuning_inputs import WITH_TEACHER
from tfopt.training.weight_changes import loaded_reproducibly, save_and_compare
from tfopt.value_types import JsonObject

RUNTIMES = ("xnnpack", "tensorrt", "others")
MIN_ZEROS = 2 / 3  # fraction from which XNNPACK uses its sparse kernels
OTHER_RUNTIMES = "no: it multiplies zeros like other weights"
FIX = "lower the sparsity, or fine-tune: pass module=PATH and examples=PATH"


def prune_weights(
    model: KerasModel,
    examples: Examples | None,
    module: Path | None,
    target: Path,
    settings: Settings,
    teacher: Model | None = None,
) -> JsonObject:
    """Write the pruned model into the staging folder ``target`` and return the facts for its model card.

    Raises:
        ComponentError: If the model was pruned, clustered or quantized before, no kernel fits the pattern, the module
            and the model do not fit, or the outputs of the pruned model no longer depend on its inputs.
    """
    with loaded_reproducibly(model, module, settings.seed) as (keras_model, user):
        kernels = find_kernels(keras_model, settings.parsed_pattern, settings.layers)
        check_not_shrunk(kernels)
        before = [kernel.gzipped for kernel in kernels]
        if user and examples:
            tuner = FineTuner(keras_model, model, user, examples, target, settings, settings.seed)
            with tuner.distillation(teacher, keras_model, settings) as taught:
                keras_model, tuned = fine_tune(keras_model, kernels, tuner, settings)
        else:
            Masks(kernels, settings.parsed_pattern).update(settings.sparsity)
            tuned, taught = {"reason": "no module: pruned after training, without fine-tuning"}, {}
    verified = save_and_compare(keras_model, target, model, keras_model, examples, fix=FIX)
    facts = _describe(kernels, before)
    for line in [*_table(facts), parity.describe_parity(verified["outputs"])]:
        logging.getLogger(__name__).info("%s", line)
    name = f"{_name(settings)}{WITH_TEACHER if teacher else ''}"
    return {"name": name, "report": facts, "fine_tuned": tuned, "verified": verified, **taught}


def _name(settings: Settings) -> str:
    pattern = settings.parsed_pattern
    if pattern.name == "n_m":
        return f"pruned {pattern.ratio[0]}:{pattern.ratio[1]}"
    shape = f" in {pattern.block[0]}x{pattern.block[1]} blocks" if pattern.name == "block" else ""
    return f"pruned {settings.sparsity:.0%}{shape}"


def _describe(kernels: Sequence[Kernel], gzipped_before: Sequence[int]) -> JsonObject:
    """Return the report of a pruned model; ``gzipped_before`` are the bytes of each kernel before pruning."""
    layers: list[JsonObject] = []
    for kernel, before in zip(kernels, gzipped_before, strict=True):
        speed = {"xnnpack": _xnnpack(kernel, kernels[0]), "tensorrt": _tensorrt(kernel), "others": OTHER_RUNTIMES}
        layers.append({**report_row(kernel, before), "left": kernel.left, "speed": speed})
    total = sum(int(kernel.values.size) for kernel in kernels)
    zeros = sum(int(np.count_nonzero(kernel.values == 0)) for kernel in kernels)
    pruned = sum(kernel.left is None for kernel in kernels)
    summary = f"{pruned} of {len(kernels)} kernels pruned, {zeros / total:.1%} of their weights are zero"
    return {"summary": summary, "sparsity": zeros / total, "speed": _summarize_speedups(layers), "layers": layers}


def describe_channels(before: Iterable[Kernel], after: Iterable[Kernel]) -> JsonObject:
    """Return the report of a model with fewer channels: the size of each kernel before and after."""
    baselines = {(kernel.path, kernel.name): kernel for kernel in before}
    layers: list[JsonObject] = []
    smaller = 0
    for kernel in after:
        baseline = baselines[kernel.path, kernel.name]
        is_smaller = kernel.values.nbytes < baseline.values.nbytes
        smaller += is_smaller
        layers.append(
            {
                **report_row(kernel, baseline.gzipped),
                "shape_before": list(baseline.variable.shape),
                "bytes_before": baseline.values.nbytes,
                "speed": dict.fromkeys(RUNTIMES, "yes: dense and smaller" if is_smaller else "no: unchanged channels"),
            }
        )
    speed = f"every runtime multiplies less, in {smaller} of {len(layers)} kernels: benchmark measures the speedup"
    return {"speed": speed, "layers": layers}


def _table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines to print: zeros and bytes of each layer, and the runtimes that can be faster, or the reasons."""
    pruned = [layer for layer in report["layers"] if not layer["left"]]
    reasons = Counter((runtime, layer["speed"][runtime]) for runtime in RUNTIMES for layer in pruned)
    return [
        report["summary"],
        *table_lines(report["layers"], "{sparsity:6.1%} zeros"),
        report["speed"],
        *(
            f"  {runtime}, {count} of {len(pruned)} pruned kernels: {reason}"
            for (runtime, reason), count in reasons.items()
        ),
    ]


def _xnnpack(kernel: Kernel, first: Kernel) -> str:
    """Return ``yes`` with a condition, or ``no`` with the reason; the model's first kernel decides, too."""
    shape, kind = tuple(kernel.variable.shape), type(kernel.layer).__name__
    if kind != "Conv2D" or shape[:2] != (1, 1):
        return "no: it has sparse 1x1 convolutions only"
    if np.mean(kernel.values == 0) < MIN_ZEROS:
        return f"no: under {MIN_ZEROS:.0%} zeros"
    first_shape = tuple(first.variable.shape)
    stride = tuple(getattr(first.layer, "strides", ()))
    if first_shape[:3] != (3, 3, 3) or stride != (2, 2):
        return "no: only in a network that starts with a 3x3 convolution of stride 2 on 3 channels"
    return "yes: if the file is exported sparse in float32; measure it"


def _tensorrt(kernel: Kernel) -> str:
    kind: str = type(kernel.layer).__name__
    if kind in TRANSPOSED or not any(word in kind for word in ("Conv", "Dense")):
        return "no: it has sparse convolutions and matrix products only"
    if not is_n_m(kernel.values, 2, 4, input_axis(kernel)):
        return "no: it needs 2 zeros in every 4 input channels (pattern='n_m')"
    return "yes: in float16 or int8, on a GPU of compute capability 8.0 or later"


def _summarize_speedups(layers: Sequence[Mapping[str, Any]]) -> str:
    """Return one line with the runtimes that can be faster with the zeros."""
    counts = {
        runtime: sum(layer["speed"][runtime].startswith("yes") for layer in layers)
        for runtime in ("xnnpack", "tensorrt")
    }
    faster = [f"{runtime} in {count} of {len(layers)} layers" for runtime, count in counts.items() if count]
    if not faster:
        return "zeros make the compressed file smaller, and no runtime faster"
    return f"runtimes that can use the zeros: {', '.join(faster)}"
