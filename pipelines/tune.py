"""The main job with a recipe search: the recipe of the last run is used again until it no longer meets the goals."""

from dataclasses import dataclass

from tfopt.artifacts import Files, KerasModel, PythonModule, TrainingPlan
from tfopt.component import Group, Input
from tfopt.pipelines.optimize import Replaying, Selection, replay_inputs, select_and_push, values_of
from tfopt.pipelines.retrain import Training, prepare_and_train
from tfopt.trace import Inherited, Steps


@dataclass(frozen=True)
class Search:
    """Parameters of the search for a recipe."""

    formats: Inherited
    trials: Inherited
    minutes: Inherited
    fine_tuning_epochs: Inherited


def tune(
    steps: Steps,
    data: Input[Files],
    module: Input[PythonModule],
    plan: Input[TrainingPlan] | None = None,
    start: Input[KerasModel] | None = None,
    recording: Input[Files] | None = None,
    *,
    training: Group[Training],
    search: Group[Search],
    selection: Group[Selection],
    replaying: Group[Replaying],
) -> dict[str, object]:
    """Retrain a model on fresh data, optimize it by the last run's recipe or search a new one, and push the result.

    The recipe is stored in the destination. The first run searches. A later run tries the stored recipe and searches
    again only if its model misses the goals, is no longer significantly better, or was not served.

    Args:
        steps: Adds the steps.
        data: The raw data: CSV, TSV, JSON lines, Parquet or NPZ files, image folders or TFRecords.
        module: Your Python file, with build_model() and, optionally, preprocess(features) and metrics.
        plan: The training plan of profile_training: settings that were measured to make this training faster.
        start: The model that train wrote in the last blessed run: training begins with its weights.
        recording: Requests to the served version, which the selected model must answer as well before it is pushed.
        training: Parameters of the data preparation and the training.
        search: Parameters of the search for a recipe.
        selection: Parameters of the measurement, the selection and the push.
        replaying: Parameters of the replay of the recording.
    """
    inputs = {"module": module, "plan": plan, "start": start}
    examples, trained = prepare_and_train(steps, data, training, selection, **inputs)
    tuned = steps.tune_recipe(
        model=trained,
        examples=examples,
        module=module,
        **values_of(selection, "label", "output", "metrics", "slices", "goals", "slice_records", "objective"),
        **values_of(selection, "seconds", "batch_sizes", "destination"),
        **values_of(search, "formats", "trials", "minutes", "fine_tuning_epochs"),
    ).outputs
    candidates, replay = [tuned["tuned"]], replay_inputs(recording, replaying)
    warm_start = {"trained": trained, "recipe": tuned["recipe"]}
    return select_and_push(steps, trained, candidates, examples, selection, None, module, replay, **warm_start)
