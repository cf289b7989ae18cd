"""Build a backbone with untrained weights, inspect it, and export it to each format.

Each step runs in a process of its own, so that a crash is an error of one backbone.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.artifacts import Examples, Inspection
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.component import find
from tfopt.components.compare_backbones.budget import Budget
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.data.batches import serialize_records
from tfopt.data.feature_schema import MANIFEST
from tfopt.data.sample_inputs import draw_inputs
from tfopt.data.tfrecords import write_split
from tfopt.execution.execute import run_component
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.reports.inspection_report import InspectionReport
from tfopt.reports.report_schema import dump
from tfopt.training.user_module import UserModule

TOLERANCE = 0.1  # of the output's range, which may be small before training; only speed is measured
BATCH_SIZE = 32  # records that the statistics of the batch norms are computed from
RANDOM_RECORDS = 16  # records of each split of random examples


def build_model(
    module: Path, resolved: ResolvedSettings, examples: Examples, folder: Path, budget: Budget
) -> InspectionReport:
    """Save the module's untrained model as ``folder/saved_model`` and inspect it.

    Raises:
        ComponentError: If it cannot be built, or the budget is spent.
    """
    arguments = module, resolved, examples, folder
    limit = budget.remaining_seconds()
    return run_in_child(_build_model, *arguments, doing=f"building {module.stem}", limit_s=limit)


def export_model(folder: Path, format_name: str, examples: Examples, budget: Budget) -> Path:
    """Export the saved model in a folder to a format, and return the path of the result.

    Raises:
        ComponentError: If it cannot be exported, or the budget is spent.
    """
    saved = folder / "saved_model"
    if format_name == "saved_model":
        return saved
    exporter, output, target = FORMATS[format_name].exporter, FORMATS[format_name].exported, folder / format_name
    assert exporter
    arguments = {"model": str(saved), "examples": examples.uri, output: str(target), "tolerance": TOLERANCE}
    limit = budget.remaining_seconds()
    run_component(exporter, arguments, doing=f"{exporter} of {folder.name}", limit_s=limit)
    return target


def randomize_constant_weights(model: Any, images: NDArray[Any], seed: int) -> None:
    """Change the weights such that inference costs as much as after training.

    Biases, scales and shifts are initialized to zeros and ones, which converters remove; here they become random.
    The batch norms get the statistics of some images. With their initial statistics, activations shrink from layer to
    layer until an exporter cannot compare outputs.
    """
    import keras

    generator = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        value = np.array(weight)
        if value.min() == value.max():
            weight.assign(value + 0.1 * generator.standard_normal(value.shape))
    norms = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(images, training=True)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def write_random_examples(folder: Path, resolved: ResolvedSettings) -> Examples:
    """Write examples of random pixels, from 0 to 255, in a process with TensorFlow."""
    run_in_child(_write_random_examples, folder, resolved, doing="writing random examples")
    return Examples(folder)


def _write_random_examples(folder: Path, resolved: ResolvedSettings) -> None:
    image, size, generator = (
        resolved.settings.image,
        resolved.stored_size,
        np.random.default_rng(resolved.settings.seed),
    )
    for split in ("train", "eval"):
        pixels = generator.integers(0, 256, (RANDOM_RECORDS, *size))
        write_split(folder, split, serialize_records({image: pixels}))
    counts = dict.fromkeys(("train", "eval"), RANDOM_RECORDS)
    manifest = ExamplesManifest(features={image: FeatureStatistics("int64", [*size])}, splits=counts)
    (folder / MANIFEST).write_text(json.dumps(dump(manifest)))


def _build_model(module: Path, resolved: ResolvedSettings, examples: Examples, folder: Path) -> InspectionReport:
    from tfopt.training.determinism import set_seeds  # imports TensorFlow
    from tfopt.training.model_assembly import assemble

    settings, size = resolved.settings, resolved.stored_size
    set_seeds(settings.seed)
    stored = {settings.image: TensorSpec("float32", (None, math.prod(size)))}
    parts = assemble(UserModule(module), stored, examples, settings.label)
    specs = {settings.image: TensorSpec("float32", (None, *size))}
    batch, _ = draw_inputs(examples, specs, records=BATCH_SIZE, seed=settings.seed, seen="eval")
    randomize_constant_weights(parts.saved, batch[settings.image], settings.seed)
    keras_models.save(parts.saved, folder / "saved_model")
    find("inspect_model")(model=folder / "saved_model", inspection=folder / "inspection")
    return Inspection(folder / "inspection").load()
