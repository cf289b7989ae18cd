"""What is judged and how: decided once, before any worker starts, from the baseline's answers to the first batch."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfopt.artifacts import Model
from tfopt.artifacts.storage import fetched
from tfopt.artifacts.tensor_spec import TensorSpec
from tfopt.components.evaluate import records
from tfopt.components.evaluate.accumulators import grain_of
from tfopt.components.evaluate.loaded_models import answer, judged_output
from tfopt.components.evaluate.metrics import Scoring, looks_like_logits
from tfopt.data.batches import check_features, feature_specs
from tfopt.data.feature_schema import with_manifest
from tfopt.errors import ComponentError, nearest
from tfopt.runtimes import Runtime

LARGEST_BATCH, BATCH_BYTES = 256, 32 << 20


@dataclass(frozen=True)
class Question:
    """What the user asked: the component's parameters."""

    label: str
    split: str
    task: str
    output: str | None
    slices: tuple[str, ...]
    top_k: int
    replicates: int
    seed: int


@dataclass(frozen=True)
class Plan:
    """Everything a worker needs to know.

    Attributes:
        question: The parameters.
        models: Where each model is and its digest, the baseline first.
        stored: How each feature of the examples is stored.
        batch_size: The same everywhere, since the bootstrap's weights go by batch.
        scoring: How answers are judged.
        output: The baseline's judged output.
        metric_grain: What sums are rounded to, ``[metrics]``.
        output_grain: The same for differences of outputs.
        calibrated: What identifies the records that each model was calibrated on.
    """

    question: Question
    models: tuple[tuple[str, str], ...]
    stored: Mapping[str, TensorSpec]
    batch_size: int
    scoring: Scoring
    output: str
    metric_grain: NDArray[np.float64]
    output_grain: float
    calibrated: tuple[frozenset[str], ...] = ()


def make_plan(question: Question, models: list[Model], baseline: Runtime, files: list[str]) -> Plan:
    """Run the baseline on the first batch that has a label, and decide.

    Raises:
        ComponentError: When the label or a slice is absent or of the wrong type, the inputs do not match, the output
            is not clear, or the baseline's answers do not fit the task.
    """
    stored = _stored_features(files)
    _check_label(question, stored)
    _check_slices(question, stored)
    check_features(stored, baseline.inputs, f"baseline {models[0].uri}")
    output = judged_output(baseline, question.output)
    batch_size = _batch_size(stored)
    batch = _first_batch(files, question, stored, baseline, batch_size)
    labels = batch[question.label]
    answers = answer(baseline, batch, output)
    if not np.isfinite(answers).all():
        broken = int((~np.isfinite(answers)).any(1).sum())
        raise ComponentError(
            f"baseline {models[0].uri}: NaN or infinity in {broken} of the first {len(answers)} answers",
            "finite outputs",
            "check its weights for NaN and the inputs for values out of range",
        )
    task = _task(question, answers, labels)
    scoring = Scoring(task, looks_like_logits(answers, task), answers.shape[1], question.top_k)
    check_labels(scoring, question.label, labels)
    values = scoring.values(answers, labels)
    return Plan(
        question,
        tuple((model.uri, model.digest) for model in models),
        stored,
        batch_size,
        scoring,
        output,
        grain_of(values.mean(0)),
        float(grain_of(np.abs(answers).max())),
    )


def check_labels(scoring: Scoring, label: str, labels: NDArray[Any]) -> None:
    """Raise ComponentError unless every label is one of the classes the model knows."""
    if not (classes := scoring.known_classes):
        return
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ComponentError(
            f"label {label!r} has the value {int(wrong[0])}",
            f"a class from 0 to {classes - 1}, as the output has {scoring.width} values",
            "number the classes from 0, or pass task=regression if it is no class",
        )


def _stored_features(files: list[str]) -> dict[str, TensorSpec]:
    """The features of the first records; one alone might lack the label."""
    found: dict[str, TensorSpec] = {}
    met = 0
    for record in itertools.islice(records.read_records(fetched(file) for file in files), 64):
        met += 1
        try:
            found = {**feature_specs(record), **found}
        except Exception:  # no tf.Example; it will be counted as skipped
            continue
    if not found:
        received = f"none of the first {met} records is a tf.Example" if met else "no records"
        raise ComponentError(
            f"{files[0]}: {received}", "tf.Example records with features", "prepare the examples again"
        )
    return with_manifest(found, files)


def _check_label(question: Question, stored: Mapping[str, TensorSpec]) -> None:
    name = question.label
    if name not in stored:
        raise ComponentError(f"no label {name!r}", f"one of the features {', '.join(stored)}", nearest(name, stored))
    spec = stored[name]
    if spec.dtype == "string":
        raise ComponentError(
            f"label {name!r} is text",
            "int64 classes, numbered from 0 as the model's output is, or float targets",
            "prepare the examples with the classes numbered; text does not say which output it belongs to",
        )
    if question.task in ("classification", "binary") and (spec.dtype != "int64" or spec.shape[1] != 1):
        raise ComponentError(
            f"label {name!r} is {spec}",
            f"one int64 for task={question.task}",
            "pass task=regression, or store classes as integers",
        )


def _check_slices(question: Question, stored: Mapping[str, TensorSpec]) -> None:
    for name in question.slices:
        if name not in stored:
            raise ComponentError(f"no slice feature {name!r}", f"features {', '.join(stored)}", nearest(name, stored))
        if stored[name].dtype == "float32" or stored[name].shape[1] != 1:
            raise ComponentError(
                f"slice feature {name!r} is {stored[name]}",
                "one integer or text a record",
                "store it in steps, as an integer",
            )


def _batch_size(stored: Mapping[str, TensorSpec]) -> int:
    size = sum((spec.shape[1] or 0) * 8 for spec in stored.values())
    return int(np.clip(BATCH_BYTES // max(size, 1), 1, LARGEST_BATCH))


def _first_batch(
    files: list[str], question: Question, stored: Mapping[str, TensorSpec], baseline: Runtime, size: int
) -> dict[str, NDArray[Any]]:
    decoder = records.Decoder(stored, question.label, question.slices, baseline.inputs)
    for file in files:
        for _, batch in records.read_part(fetched(file), 0, 1, size):
            kept, columns, _ = decoder.decode(batch)
            if len(kept):
                return columns
    raise ComponentError(
        f"no record of split {question.split!r} has the label and all inputs",
        f"records with {', '.join([question.label, *baseline.inputs])}",
        "prepare the examples again",
    )


def _task(question: Question, answers: NDArray[Any], labels: NDArray[Any]) -> str:
    width = answers.shape[1]
    task = question.task
    if task == "auto":
        if labels.dtype.kind == "f" or labels.shape[1] > 1:
            task = "regression"
        elif width > 1:
            task = "classification"
        else:
            task = "binary" if np.isin(labels, (0, 1)).all() else "regression"
    wanted = {"classification": width > 1, "binary": width == 1, "regression": width == labels.shape[1]}
    if not wanted[task]:
        need = {"classification": "2 or more", "binary": "1", "regression": f"{labels.shape[1]} (as the label)"}[task]
        raise ComponentError(
            f"output of {width} values a record, label {question.label!r} of {labels.shape[1]}",
            f"{need} for task={task}",
            "pass the task that fits the model, or output=NAME to judge another output",
        )
    return task
