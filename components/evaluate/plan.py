"""Plan of an evaluation, made before any worker starts, from the baseline's predictions on the first batch."""

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.saved_model_proto import check_signature
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate.examples import records
from tfopt.components.evaluate.examples.record_checks import calibration_records
from tfopt.components.evaluate.loaded_models import run_output, select_output
from tfopt.components.evaluate.metrics.accumulators import Position, grain_of
from tfopt.components.evaluate.metrics.constant_model import constant_output
from tfopt.components.evaluate.metrics.user_metrics import UserMetric, measure_first_batch
from tfopt.components.evaluate.parameters import Settings
from tfopt.components.evaluate.task_choice import check_labels, choose_scoring
from tfopt.components.evaluate.worker_plan import Plan
from tfopt.data.feature_schema import check_features, feature_specs, match_features, required_features, with_manifest
from tfopt.data.tfrecords import read_records
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.metric_table import BINARY, CLASSIFICATION, OTHER
from tfopt.runtimes import Runtime
from tfopt.storage.remote_files import local_copy

LARGEST_BATCH, BATCH_BYTES = 256, 16 << 20  # every loaded runtime retains memory for the activations of a batch
# A large model computes many values for a record: a transformer of 207 MB takes gigabytes for 256 records at once.
LARGE_MODEL, LARGEST_BATCH_OF_LARGE_MODELS = 64 << 20, 32  # bytes of its files, records
GROUP_BYTES = 384 << 20  # files of the models that are loaded together; in memory, a model takes several times as much
MOST_TOGETHER = 8  # models: each runtime holds the activations of a batch, whatever the size of the files
STORED_BYTES = 512 << 20  # stored predictions of all models
FEWEST_RECORDS = 1024  # with fewer records between two loads of a model, loading would take most of the time


def make_plan(
    settings: Settings,
    models: list[Model],
    addresses: list[str],
    baseline: Runtime,
    files: list[str],
    metrics: tuple[UserMetric, ...],
) -> tuple[Plan, Position, NDArray[Any]]:
    """Run the baseline on the first batch that has a label, and derive the plan.

    Returns:
        The plan, the position of that batch, and the baseline's predictions for it.

    Raises:
        ComponentError: If the label or a slice is missing or has the wrong type, the inputs do not match, the output
            is ambiguous, the baseline's predictions do not fit the task, or a metric of the user returns no numbers.
    """
    if models[0].format == "saved_model" and models[0].saved_model:
        check_signature(models[0].saved_model, models[0].signature)
    features = _read_features(files)
    _check_label(settings, features)
    _check_slices(settings, features)
    baseline.inputs = match_features(baseline.inputs, features, settings.label)
    check_features(features, baseline.inputs, f"baseline {models[0].uri}")
    output = select_output(baseline, settings.output)
    sizes = [sum(file.stat().st_size for file in model.payload()) for model in models]
    batch_size = _batch_size(features, max(sizes))
    position, batch = _first_batch(files, settings, features, baseline, batch_size)
    labels = batch[settings.label]
    outputs = run_output(baseline, batch, output)
    predictions = outputs.reshape(len(outputs), -1)
    if broken := int((~np.isfinite(predictions)).any(1).sum()):
        received = f"baseline {models[0].uri}: NaN or infinity in {broken} of the first {len(predictions)} predictions"
        fix = "check its weights for NaN and the inputs for values out of range"
        raise ComponentError(received, "finite outputs", fix)
    scoring = choose_scoring(settings, predictions, labels)
    check_labels(scoring, settings.label, labels)
    own, tfma = measure_first_batch(metrics, scoring, labels, outputs)
    groups, stored_records = split_models(sizes, predictions[0].nbytes * len(models))
    plan = Plan(
        settings,
        tuple((address, model.digest) for address, model in zip(addresses, models, strict=True)),
        models[0].signature,
        features,
        batch_size,
        scoring,
        output,
        outputs.shape[1:],
        own,
        tfma,
        np.ones(0),
        float(grain_of(np.abs(predictions).max())),
        groups,
        max(stored_records // batch_size, 1),
        tuple(calibration_records(model) for model in models),
    )
    grain = grain_of(np.abs(plan.values(predictions, labels)).mean(0))
    return replace(plan, metric_grain=grain, constant=_constant(plan, files, labels)), position, predictions


def split_models(sizes: Sequence[int], record_bytes: int) -> tuple[tuple[range, ...], int]:
    """Split models that are too large or too many to be loaded together into groups of consecutive ones.

    Args:
        sizes: Bytes of the files of each model.
        record_bytes: Bytes of the predictions of all models for a record.

    Returns:
        The numbers of the models of each group, and the number of records whose predictions can be stored. All models
        are in one group if they are small and few, or if their predictions are too large to be stored.

    >>> split_models([300 << 20, 100 << 20, 20 << 20], record_bytes=4096)
    ((range(0, 1), range(1, 3)), 131072)
    >>> split_models([1 << 20] * 15, record_bytes=4096)
    ((range(0, 8), range(8, 15)), 131072)
    """
    records = STORED_BYTES // record_bytes
    if records < FEWEST_RECORDS:
        return (range(len(sizes)),), records
    starts, total = [0], 0
    for number, size in enumerate(sizes):
        total += size
        if number > starts[-1] and (total > GROUP_BYTES or number == starts[-1] + MOST_TOGETHER):
            starts.append(number)
            total = size
    return tuple(map(range, starts, [*starts[1:], len(sizes)])), records


def _constant(plan: Plan, files: list[str], labels: NDArray[Any]) -> NDArray[Any] | None:
    """Return the output of the constant model; None without one, or if a metric of the user refuses it."""
    output = constant_output(files, plan.settings, plan.features, plan.scoring, plan.batch_size)
    try:
        if output is not None:
            plan.values(np.broadcast_to(output, (len(labels), len(output))), labels)
    except ComponentError:
        return None
    return output


def _read_features(files: list[str]) -> dict[str, TensorSpec]:
    """Return the features of the first records; a single record may lack the label."""
    features: dict[str, TensorSpec] = {}
    first = list(itertools.islice(read_records(local_copy(file) for file in files), 64))
    for record in first:
        with contextlib.suppress(Exception):  # not a tf.Example; it will be counted as skipped
            features = feature_specs(record) | features
    if not features:
        received = f"none of the first {len(first)} records is a tf.Example" if first else "no records"
        fix = "prepare the examples again with: tfopt prepare_examples"
        raise ComponentError(f"{files[0]}: {received}", "tf.Example records with features", fix)
    return with_manifest(features, files)


def _check_label(settings: Settings, features: Mapping[str, TensorSpec]) -> None:
    name = settings.label
    if name not in features:
        received = f"no label {name!r}"
        raise ComponentError(received, f"one of the features {', '.join(features)}", nearest(name, features))
    spec = features[name]
    if spec.dtype == "string" and not (settings.metrics and settings.task in ("auto", OTHER)):
        received = f"label {name!r} is text"
        fix = "prepare the examples with the classes numbered; text does not say which output it belongs to"
        raise ComponentError(received, "int64 classes, numbered from 0 as the model's output is, or float targets", fix)
    is_class = spec.dtype == "int64" and spec.shape[1] == 1
    may_be_one_hot = settings.task == CLASSIFICATION and (spec.shape[1] or 0) > 1
    if settings.task in (CLASSIFICATION, BINARY) and not (is_class or may_be_one_hot):
        one_hot = ", or one-hot values" if settings.task == CLASSIFICATION else ""
        fix = "pass task=regression, or store classes as integers"
        raise ComponentError(f"label {name!r} is {spec}", f"one int64{one_hot} for task={settings.task}", fix)


def _check_slices(settings: Settings, features: Mapping[str, TensorSpec]) -> None:
    for name in settings.slices:
        if name not in features:
            received = f"no slice feature {name!r}"
            raise ComponentError(received, f"features {', '.join(features)}", nearest(name, features))
        if features[name].dtype == "float32" or features[name].shape[1] != 1:
            received = f"slice feature {name!r} is {features[name]}"
            raise ComponentError(received, "one integer or text a record", "store it in steps, as an integer")


def _batch_size(features: Mapping[str, TensorSpec], largest_model: int) -> int:
    """Return a power of two, so that few splits end with a smaller batch: XLA compiles a program for each size."""
    size = sum((spec.shape[1] or 0) * 8 for spec in features.values())
    largest = LARGEST_BATCH_OF_LARGE_MODELS if largest_model > LARGE_MODEL else LARGEST_BATCH
    records = int(np.clip(BATCH_BYTES // max(size, 1), 1, largest))
    return 1 << (records.bit_length() - 1)


def _first_batch(
    files: list[str], settings: Settings, features: Mapping[str, TensorSpec], baseline: Runtime, size: int
) -> tuple[Position, dict[str, NDArray[Any]]]:
    decoder = records.Decoder(features, settings.label, settings.slices, baseline.inputs)
    for position, batch in records.read_parts(((file, 0, 1) for file in files), size):
        usable, columns, _ = decoder.decode(batch)
        if len(usable):
            return position, columns
    received = f"no record of split {settings.split!r} has the label and all inputs"
    expected = f"records with {', '.join([settings.label, *required_features(baseline.inputs)])}"
    raise ComponentError(received, expected, "prepare the examples again")
