"""The door of `tune_recipe`: what it promises, and what it refuses in the first second."""

import logging
from typing import Annotated, Literal

from tfopt.artifacts import Examples, Model, Recipe, SavedModel
from tfopt.component import Between, Input, Output, Reads, component, find
from tfopt.components.tune_recipe.earlier import add_earlier
from tfopt.components.tune_recipe.previous_recipe import last_recipe, read, tried_first
from tfopt.components.tune_recipe.recipes import FORMATS
from tfopt.errors import ComponentError
from tfopt.measurement.goals import read_goals


@component(
    image="beam",
    cache="local",
    runs=(
        "fold_batch_norm",
        "optimize_graph",
        "cast_precision",
        "compile_xla",
        "export_tflite",
        "export_onnx",
        "export_openvino",
        "evaluate",
        "benchmark",
        "select_model",
    ),
    cpu=2,
    memory="8Gi",
)
def tune_recipe(
    model: Input[SavedModel],
    examples: Input[Examples],
    tuned: Output[Model],
    recipe: Output[Recipe],
    previous: Input[Recipe] | None = None,
    *,
    goals: Annotated[list[str], Reads(read_goals, ("quality max_degradation 1%",))] = ["quality max_degradation 1%"],  # noqa: B006  (a declared default, never changed)
    objective: Literal["latency", "throughput", "size", "size_gzipped", "memory", "quality"] = "latency",
    label: str = "label",
    output: str | None = None,
    formats: list[str] = list(FORMATS),  # noqa: B006  (a declared default, never changed)
    trials: Annotated[int, Between(1, 1000)] = 20,
    minutes: Annotated[float, Between(0.1)] = 30.0,
    last: str | None = None,
    seconds: Annotated[float, Between(0.1)] = 6.0,
    batch_sizes: list[str] = ["1", "32"],  # noqa: B006  (a declared default, never changed)
    threads: Annotated[int, Between(1)] = 1,
    records: Annotated[int, Between(8, 10_000)] = 64,
    finalists: Annotated[int, Between(1, 10)] = 3,
    seed: int = 0,
) -> None:
    """Search for the optimizing steps, and their parameters, that serve a model best within a budget.

    A recipe folds or rewrites the graph or leaves it as it is, and then stays a SavedModel (in 32 or 16 bits, compiled
    by XLA or not) or becomes LiteRT, ONNX or OpenVINO in one of their precisions. One recipe of each format is tried
    first; then Optuna proposes those like the best so far. What misses a goal on the size, or changes more of a few
    answers than the goals can allow, is given up before anything is measured; the others are measured beside the model
    by `evaluate` and `benchmark`. A recipe that cannot be made is a trial with the reason.

    The search ends with its trials or minutes, when every recipe was tried, or when a recipe is proven better at the
    objective and meets every goal, if any of these says what is enough (threshold, min_improvement). Of several that
    were measured the best are then measured again, beside each other, so that none wins by the luck of one measurement,
    and `select_model` chooses. When none is proven better the model itself is handed on.

    Given the recipe of an earlier run, that one's winner is made first. If it still meets the goals and is proven
    better, that is all; else it is the first trial of a new search. What that run measured, and those before it, is on
    the page and in ``earlier``, and on the Pareto front where nothing beats it: of each recipe the newest measurement.
    It is left out where it cannot be compared: where task, label, split, CPU, threads or batch sizes were others, or
    the model, by its format and size. Each was measured beside the parent of its run. Where that was another training,
    or the examples were others, the row says so: speed and size next to the parent carry over, what a recipe costs in
    quality need not.

    Args:
        model: What the recipes start from.
        examples: Examples with the splits train (calibration) and eval (measurement).
        tuned: The chosen model, whole, in whichever format won.
        recipe: ``recipe.json``: the winner's steps and commands, every trial, those of earlier runs, the Pareto front
            of all; ``report.html``, and ``decision.html``, `select_model`'s page on the last round.
        previous: The recipe of an earlier run.
        goals: What a recipe must satisfy, in the words of `select_model`.
        objective: What the winner is best at among those that satisfy the goals.
        label: The feature that holds the truth.
        output: Which output is judged, where the model has several.
        formats: Which of saved_model, tflite, onnx and openvino the winner may have.
        trials: How many recipes are tried at most.
        minutes: How long is searched at most. A trial that has begun is ended, and the last round comes on top.
        last: The ``destination`` of `push_model` in earlier runs: without a previous, the recipe that is kept there; it
            is searched anew where there is none yet, or where its choice was not served in the end.
        seconds: How long the speed of each model is measured, in a trial and in the last round.
        batch_sizes: Examples in a call whose speed is measured, as `benchmark` takes them.
        threads: Threads, and cores, of each model whose speed is measured.
        records: How many records the cheap look at the answers is given.
        finalists: How many recipes at most are in the last round.
        seed: Of the proposals, the bootstrap and the order of turns. What is proposed also depends on measured times.

    Raises:
        ComponentError: When a format is unknown, the model cannot be measured on the examples, no recipe could be made,
            or ``previous`` is damaged or of another version.

    Reference:
        Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011 (the sampler).
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ComponentError(
            f"tune_recipe: formats={formats}", f"some of {', '.join(FORMATS)}", "leave formats out for all of them"
        )
    find("benchmark").check({"batch_sizes": batch_sizes})
    examples.split("train")
    examples.split("eval")
    before = read(previous or last_recipe(last))
    first = tried_first(before, formats)
    from tfopt.components.tune_recipe.report import page
    from tfopt.components.tune_recipe.trial_measurement import Question
    from tfopt.components.tune_recipe.tune import Budget, tune

    question = Question(read_goals(goals), objective, label, output, seconds, tuple(batch_sizes), threads, seed)
    budget = Budget(tuple(formats), trials, minutes, records, finalists)
    content = tune(model, examples, first, question, budget, tuned.path, recipe.path)
    add_earlier(before, content)
    recipe.write(content)
    (recipe.path / Recipe.page).write_text(page(content), encoding="utf-8")
    logging.getLogger("tfopt").info("%s", content["reason"])
    recipe.metadata |= {
        "winner": content["winner"]["name"] if content["winner"] else "the model itself",
        "trials": len(content["trials"]),
        "reused": int(content["reused"]),
        "reason": content["reason"],
    }
