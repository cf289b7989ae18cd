"""The main job: retrain a model on fresh data, optimize it, select the best candidate and push it."""

from dataclasses import dataclass
from typing import Any

from tfopt.artifacts import Files, KerasModel, PythonModule, TrainingPlan
from tfopt.component import Group, Input
from tfopt.pipelines.optimize import (
    FORMATS,
    Replaying,
    Selection,
    make_candidates,
    replay_inputs,
    select_and_push,
    values_of,
)
from tfopt.trace import Inherited, Steps


@dataclass(frozen=True)
class Training:
    """Parameters of the data preparation and the training.

    Attributes:
        splits: Names with weights. The model is trained on train; eval stops training and selects its best epoch;
            candidates are measured on test. Without test they are measured on eval, which is slightly optimistic.
        warm_start: Without a ``start``, training begins with the model behind the newest version in ``destination``, or
            from initial weights if nothing was pushed yet.
    """

    files: Inherited
    columns: Inherited
    rename: Inherited
    missing: Inherited
    pack: Inherited
    classes: Inherited
    epochs: Inherited
    min_change: Inherited
    class_weights: Inherited
    splits: Inherited = ("train:8", "eval:1", "test:1")
    warm_start: Inherited = False


def retrain(
    steps: Steps,
    data: Input[Files],
    module: Input[PythonModule],
    plan: Input[TrainingPlan] | None = None,
    start: Input[KerasModel] | None = None,
    recording: Input[Files] | None = None,
    *,
    training: Group[Training],
    selection: Group[Selection],
    replaying: Group[Replaying],
) -> dict[str, object]:
    """Retrain a model on fresh data, optimize it, measure every candidate, and push the selected one.

    Args:
        steps: Adds the steps.
        data: The raw data: CSV, TSV, JSON lines, Parquet or NPZ files, image folders or TFRecords.
        module: Your Python file, with build_model() and, optionally, preprocess(features) and metrics.
        plan: The training plan of profile_training: settings that were measured to make this training faster.
        start: The model that train wrote in the last blessed run: training begins with its weights.
        recording: Requests to the served version, which the selected model must answer as well before it is pushed.
        training: Parameters of the data preparation and the training.
        selection: Parameters of the measurement, the selection and the push.
        replaying: Parameters of the replay of the recording.
    """
    inputs = {"module": module, "plan": plan, "start": start}
    examples, trained = prepare_and_train(steps, data, training, selection, **inputs)
    candidates = make_candidates(steps, trained, examples, FORMATS)
    replay = replay_inputs(recording, replaying)
    return select_and_push(steps, trained, candidates, examples, selection, None, module, replay, trained=trained)


def prepare_and_train(
    steps: Steps, data: Any, training: Training, selection: Selection, **inputs: Any
) -> tuple[Any, Any]:
    """Prepare the examples and train the model, with the other ``inputs`` of `train`; return both."""
    prepared = steps.prepare_examples(
        data=data,
        **values_of(training, "files", "columns", "rename", "missing", "pack", "classes", "splits"),
        **values_of(selection, "label", "goals", "metrics", "confidence"),
    )
    examples = prepared.outputs["examples"]
    trained = steps.train(
        examples=examples,
        **values_of(training, "epochs", "warm_start", "min_change", "class_weights"),
        **values_of(selection, "label", "destination"),
        **inputs,
    )
    return examples, trained.outputs["trained"]
