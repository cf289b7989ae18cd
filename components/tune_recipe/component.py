from tfopt.artifacts import Examples, Model, PythonModule, Recipe, SavedModel
from tfopt.component import Group, Input, Output, component, find
from tfopt.components.tune_recipe.earlier_runs import find_previous, first_trial, read_previous
from tfopt.components.tune_recipe.parameters import SearchSettings
from tfopt.components.tune_recipe.recipes import FORMATS
from tfopt.components.tune_recipe.search_cost import check_cost
from tfopt.errors import ComponentError
from tfopt.training.fine_tuning_inputs import check_fine_tuning_inputs


@component(
    image="beam",
    purpose="selection",
    cache="local",
    runs=(
        *("prune", "quantize", "measure_sensitivities", "fold_batch_norm", "optimize_graph", "cast_precision"),
        *("compile_xla", "quantize_graph", "export_tflite", "export_onnx", "export_openvino"),
        *("evaluate", "benchmark", "select_model"),
    ),
    model_signature=True,
    cpu=2,
    memory="8Gi",
)
def tune_recipe(
    model: Input[SavedModel],
    examples: Input[Examples],
    tuned: Output[Model],
    recipe: Output[Recipe],
    previous: Input[Recipe] | None = None,
    module: Input[PythonModule] | None = None,
    *,
    settings: Group[SearchSettings],
) -> None:
    """Search for the optimization steps, and their parameters, that are best for a model within a budget.

    A recipe folds batch norms or rewrites the graph, or does neither. The result stays a SavedModel (in 32 or 16 bits,
    with or without XLA, or in 8 bits) or becomes LiteRT, ONNX or OpenVINO in one of their precisions. One recipe of
    each format is tried first; then Optuna proposes recipes that resemble the best ones. A model that misses a goal on
    the size, or whose outputs on a few records differ by more than the goals can allow, is given up before it is
    measured. The others are measured together with the parent by `evaluate` and `benchmark`. A recipe that fails is a
    trial with the reason.

    With ``fine_tuning_epochs`` a recipe may first remove channels, train with rounded weights in 8 or in 6 bits in the
    mean, by the sensitivities of the layers, or do both, and learn from the model. Its model is judged like all others.

    The search ends with its trials or minutes, when every recipe was tried, with ``price`` when a further trial costs
    more than it is expected to save in a month, or when a recipe is significantly better at
    the objective and meets all goals, if one of them sets a target (threshold, min_improvement). The best recipes are
    then measured again, all in one run, so that no recipe wins by a lucky measurement, and `select_model` selects one.
    If none is significantly better, the output is the model itself.

    The winner of an earlier run is tried first. If it still meets the goals and is significantly better, there is no
    search. Measurements of earlier runs are in the report and in ``earlier``, the newest for each recipe, and count for
    the Pareto front. They are left out if they are not comparable: if task, label, split, CPU, threads or batch sizes
    differ, or the format or size of the model. Each was measured together with the parent of its run. If that parent or
    the examples were different, the row says so: relative speed and size carry over, the loss of quality may not.

    Args:
        model: The model that the recipes start from.
        examples: Examples with the splits train (calibration) and eval (measurement).
        tuned: The selected model, in the format that won.
        recipe: ``recipe.json``: the winner's steps and commands, all trials, those of earlier runs, the Pareto front;
            ``report.html``, with the history and the Pareto front; ``decision.html``, the report of `select_model` on
            the last round; and ``optuna-journal.log``, which ``optuna-dashboard`` opens.
        previous: The recipe of an earlier run.
        module: Your Python file with functions for ``metrics``, and for ``fine_tuning_epochs`` with the ``build_model``
            that the model was trained with.
        settings: Goals, budget and measurement.

    Raises:
        ComponentError: If a format is unknown, ``fine_tuning_epochs`` is passed without what it needs, the model cannot
            be measured on the examples, every recipe failed, or ``previous`` is damaged or has another version.

    Reference:
        Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011 (the sampler).
    """
    _check_settings(settings)
    examples.split("train")
    examples.split("eval")
    if settings.fine_tuning_epochs:
        _check_trainable(model, examples, module)
    earlier = read_previous(previous or find_previous(settings.destination))
    first = first_trial(earlier, settings.formats, settings.fine_tuning_epochs > 0)
    from tfopt.components.tune_recipe.tune import tune  # imports Optuna

    report = tune(model, examples, first, earlier, settings, tuned.path, recipe, module)
    recipe.metadata |= {
        "winner": report.winner.name if report.winner else "the model itself",
        "trials": len(report.trials),
        "reused": int(report.reused),
        "reason": report.reason,
    }


def _check_settings(settings: SearchSettings) -> None:
    if not settings.formats or not set(settings.formats) <= set(FORMATS):
        received = f"tune_recipe: formats={list(settings.formats)}"
        raise ComponentError(received, f"some of {', '.join(FORMATS)}", "leave formats out for all of them")
    check_cost(settings)
    find("benchmark").check({"batch_sizes": list(settings.batch_sizes)})


def _check_trainable(model: SavedModel, examples: Examples, module: PythonModule | None) -> None:
    missing = "a module" if module is None else "a Keras model" if not model.keras else None
    if missing:
        fix = "pass module=PATH and the Keras model that train wrote, or leave fine_tuning_epochs out"
        raise ComponentError(f"tune_recipe: fine_tuning_epochs without {missing}", "both of them", fix)
    check_fine_tuning_inputs(examples, module, verb="tune")
