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
from tfopt.components.compare_backbones.parameters import Size
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.data.feature_schema import MANIFEST
from tfopt.data.sample_inputs import draw_inputs
from tfopt.execution.execute import run_component
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.reports.inspection_report import InspectionReport
from tfopt.reports.report_schema import dump
from tfopt.training.determinism import set_seeds
from tfopt.training.model_assembly import assemble
from tfopt.training.user_module import UserModule

TOLERANCE = 0.1  # of the output's range, which may be small before training; only speed is measured
BATCH_SIZE = 32  # records that the statistics of the batch norms are computed from
RANDOM_RECORDS = 16  # records of each split of random examples


def build_model(
    module: Path, resolved: ResolvedSettings, examples: Examples | None, folder: Path, budget: Budget
) -> InspectionReport:
    """Save the module's untrained model as ``folder/saved_model`` and inspect it.

    Raises:
        ComponentError: If it cannot be built, or the budget is spent.
    """
    settings = resolved.settings
    return run_in_child(
        _build_model,
        *(str(module), str(folder), examples.uri if examples else None),
        *(settings.image, settings.label, resolved.stored_size, settings.seed),
        doing=f"building {module.stem}",
        limit_s=budget.remaining_seconds(),
    )


def export_model(folder: Path, format_name: str, examples: Examples | None, budget: Budget) -> Path:
    """Export the saved model in a folder to a format, and return the path of the result.

    Raises:
        ComponentError: If it cannot be exported, or the budget is spent.
    """
    saved = folder / "saved_model"
    if format_name == "saved_model":
        return saved
    exporter, output, target = FORMATS[format_name].exporter, FORMATS[format_name].exported, folder / format_name
    assert exporter
    arguments = {"model": str(saved), "examples": input_examples(folder, examples).uri, output: str(target)}
    run_component(
        exporter,
        arguments | {"tolerance": TOLERANCE},
        doing=f"{exporter} of {folder.name}",
        limit_s=budget.remaining_seconds(),
    )
    return target


def input_examples(folder: Path, examples: Examples | None) -> Examples:
    """Return the examples; without any, the random ones in the folder of a backbone."""
    return examples or Examples(folder / "examples")


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


def write_random_examples(folder: Path, image: str, size: Size, seed: int) -> None:
    """Write examples of random pixels, from 0 to 255."""
    import tensorflow as tf

    generator = np.random.default_rng(seed)
    for split in ("train", "eval"):
        (folder / f"Split-{split}").mkdir(parents=True)
        with tf.io.TFRecordWriter(str(folder / f"Split-{split}" / "data_tfrecord-00000-of-00001")) as writer:
            for _ in range(RANDOM_RECORDS):
                pixels = tf.train.Int64List(value=generator.integers(0, 256, math.prod(size)))
                features = tf.train.Features(feature={image: tf.train.Feature(int64_list=pixels)})
                writer.write(tf.train.Example(features=features).SerializeToString())
    counts = dict.fromkeys(("train", "eval"), RANDOM_RECORDS)
    manifest = ExamplesManifest(features={image: FeatureStatistics("int64", [*size])}, splits=counts)
    (folder / MANIFEST).write_text(json.dumps(dump(manifest)))


def _build_model(
    module: str, folder: str, examples_uri: str | None, image: str, label: str, stored_size: Size, seed: int
) -> InspectionReport:
    """Build, save and inspect a model in the child process."""
    target = Path(folder)
    if not examples_uri:
        write_random_examples(target / "examples", image, stored_size, seed)
    examples = input_examples(target, Examples(examples_uri) if examples_uri else None)
    set_seeds(seed)
    stored = {image: TensorSpec("float32", (None, math.prod(stored_size)))}
    parts = assemble(UserModule(Path(module)), stored, examples, label)
    specs = {image: TensorSpec("float32", (None, *stored_size))}
    batch, _ = draw_inputs(examples, specs, records=BATCH_SIZE, seed=seed, seen="eval")
    randomize_constant_weights(parts.saved, batch[image], seed)
    keras_models.save(parts.saved, target / "saved_model")
    find("inspect_model")(model=target / "saved_model", inspection=target / "inspection")
    return Inspection(target / "inspection").load()
