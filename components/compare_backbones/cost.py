"""Cost of untrained backbones: build and export each of them, count its operations, and measure it in each runtime."""

import json
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt import keras_models
from tfopt.artifacts import Benchmark, Examples, Inspection, Model
from tfopt.artifacts.formats import FORMATS
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.component import find
from tfopt.components.compare_backbones.candidate import Budget, Candidate, measure_together, summarize_error
from tfopt.components.compare_backbones.resolved_settings import ResolvedSettings
from tfopt.data.batches import serialize_records
from tfopt.data.feature_schema import MANIFEST
from tfopt.data.sample_inputs import draw_inputs
from tfopt.data.tfrecords import write_split
from tfopt.errors import ComponentError
from tfopt.execution.execute import run_component
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.benchmark_report import ModelBenchmark
from tfopt.reports.comparison_report import FailedMeasurement
from tfopt.reports.examples_manifest import ExamplesManifest, FeatureStatistics
from tfopt.reports.inspection_report import InspectionReport
from tfopt.reports.report_schema import dump
from tfopt.training.user_module import UserModule
from tfopt.value_types import JsonObject

MAX_MODELS = 6  # measured at the same time, each in a process with its runtime
BUILD_SHARE = 0.25  # of the remaining budget, after which a group is measured with the candidates that it has
TOLERANCE = 0.1  # of the output's range, which may be small before training; only speed is measured
BATCH_SIZE = 32  # records that the statistics of the batch norms are computed from
RANDOM_RECORDS = 16  # records of each split of random examples

log = logging.getLogger(__name__)


def measure_costs(
    candidates: Sequence[Candidate], resolved: ResolvedSettings, examples: Examples, budget: Budget
) -> JsonObject:
    """Inspect and benchmark each candidate, and return the fingerprint of the machine.

    Candidates are measured in groups, interleaved, so that changes of the machine's speed affect all of them alike. A
    group is measured before the next one is built: with a small budget, some candidates are measured completely.
    """
    environment: JsonObject = {}
    start = 0
    while start < len(candidates):
        group = _build_group(candidates, start, resolved, examples, budget)
        start += len(group)
        for format_name in resolved.formats:
            exported = [candidate for candidate in group if format_name in candidate.models]
            if exported:
                names = ", ".join(candidate.name for candidate in exported)
                log.info("[%s] measuring in %s: %s", budget, format_name, names)
                environment = _benchmark(exported, format_name, resolved, examples, budget) or environment
    for candidate in candidates:
        if not candidate.error and candidate.fastest_format is None:
            candidate.error = "; ".join(f"{name}: {row.error}" for name, row in candidate.benchmarks.items())
    return environment


def build_model(
    module: Path, resolved: ResolvedSettings, examples: Examples, folder: Path, budget: Budget
) -> InspectionReport:
    """Save the module's untrained model as ``folder/saved_model`` and inspect it, in a child process.

    Raise ComponentError if it cannot be built, or the budget is spent.
    """
    arguments, limit = (module, resolved, examples, folder), budget.remaining_seconds()
    return run_in_child(_build_model, *arguments, doing=f"building {module.stem}", limit_s=limit)


def export_model(folder: Path, format_name: str, examples: Examples, budget: Budget) -> Path:
    """Export the saved model in a folder to a format, in a child process, and return the path of the result.

    Raise ComponentError if it cannot be exported, or the budget is spent.
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


def _build_group(
    candidates: Sequence[Candidate], start: int, resolved: ResolvedSettings, examples: Examples, budget: Budget
) -> list[Candidate]:
    """Build and export the next candidates: as many as are measured together, or fewer if the budget is small."""
    started, group = time.monotonic(), []
    for number, candidate in enumerate(candidates[start : start + MAX_MODELS], start + 1):
        log.info("[%d/%d, %s] %s: building and exporting", number, len(candidates), budget, candidate.name)
        _build_and_export(candidate, resolved, examples, budget)
        group.append(candidate)
        elapsed, has_models = time.monotonic() - started, any(candidate.models for candidate in group)
        if has_models and (budget.is_spent or elapsed > BUILD_SHARE * budget.remaining_seconds()):
            break
    return group


def _build_and_export(candidate: Candidate, resolved: ResolvedSettings, examples: Examples, budget: Budget) -> None:
    try:
        candidate.inspection = build_model(candidate.module, resolved, examples, candidate.folder, budget)
    except ComponentError as error:
        candidate.error = summarize_error(error)
        log.info("%s could not be built: %s", candidate.name, candidate.error)
        return
    for format_name in resolved.formats:
        try:
            candidate.models[format_name] = export_model(candidate.folder, format_name, examples, budget)
        except ComponentError as error:
            candidate.benchmarks[format_name] = FailedMeasurement(summarize_error(error))
            log.info("%s: no %s: %s", candidate.name, format_name, summarize_error(error))


def _benchmark(
    candidates: Sequence[Candidate], format_name: str, resolved: ResolvedSettings, examples: Examples, budget: Budget
) -> JsonObject:
    environment: JsonObject = {}

    def measure(candidates: Sequence[Candidate]) -> Sequence[ModelBenchmark]:
        budget.remaining_seconds()
        models = [Model(candidate.models[format_name]) for candidate in candidates]
        folder = candidates[0].folder / f"benchmark {format_name}"
        find("benchmark")(
            baseline=models[0],
            candidates=models[1:] or models,  # a single model is compared with itself
            benchmark=folder,
            examples=examples,
            batch_sizes=["1"],
            seconds=resolved.settings.seconds,
            threads=resolved.settings.threads,
            seed=resolved.settings.seed,
        )
        report = Benchmark(folder).load()
        environment.update(report.environment)
        return report.models[: len(models)]

    rows = measure_together(candidates, measure)
    for candidate in candidates:
        candidate.benchmarks[format_name] = rows[candidate.name]
    return environment


def _write_random_examples(folder: Path, resolved: ResolvedSettings) -> None:
    image, size = resolved.settings.image, resolved.stored_size
    generator = np.random.default_rng(resolved.settings.seed)
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
