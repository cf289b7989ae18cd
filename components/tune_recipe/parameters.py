from dataclasses import dataclass
from typing import Annotated

from tfopt.component import Between, Names, Reads
from tfopt.components.tune_recipe.recipes import FORMATS
from tfopt.measurement.goals import GOAL_MAPPING, Objective, read_goals
from tfopt.model_store.warm_start import Destination


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Goals, budget and measurement of a search.

    Attributes:
        goals: Conditions that a recipe must meet, in the syntax of `select_model`.
        objective: The metric that the winner is best at, among the recipes that meet the goals.
        label: The label feature.
        output: The output to evaluate, if the model has several.
        metrics: Your own metrics, in the syntax of `evaluate`. The first one is the main metric.
        slices: Features whose slices goals may name, in the syntax of `evaluate`.
        slice_records: Smallest number of records that a slice needs for a goal on it, as in `select_model`.
        formats: Formats that the winner may have: some of saved_model, tflite, onnx and openvino.
        trials: Maximum number of recipes to try.
        minutes: Maximum duration of the search. A trial that has started is finished, and the last round comes on top.
        fine_tuning_epochs: Epochs of each fine-tuning. With it, recipes may also remove a quarter or half of the FLOPs
            with channels, and train weights in 8 bits or in a mix of 8 and 4 bits, with the model as the teacher or
            without one. They need a module, a Keras model and its fine-tuning time. When 0: no recipe trains.
        destination: The ``destination`` of `push_model`. Without ``previous``, the recipe stored there is used; the
            search starts without one if there is none, or if the model selected then was not served.
        seconds: Measuring time of each model, in a trial and in the last round.
        batch_sizes: Batch sizes to measure, in the syntax of `benchmark`.
        threads: Threads, and cores, of each measured model.
        max_p99_ms: As in `benchmark`: also measure the capacity of a node, for objective and goals on capacity or cost.
        price: Price of a node for an hour, in any currency. With it, the search ends when a further trial costs more
            than it is expected to save in a month: the nodes for ``requests_per_second`` at the capacity, or at the
            throughput if no ``max_p99_ms`` is passed.
        requests_per_second: Requests that the model answers at the busiest time.
        records: Number of records for the first comparison of a model with its parent.
        finalists: Maximum number of recipes in the last round.
        seed: Seed of the search, the bootstrap and the order of measurements. Which recipes are tried also depends on
            measured times.
    """

    goals: Annotated[tuple[str, ...], Reads(read_goals, ("quality max_degradation 1%",), GOAL_MAPPING)] = (
        "quality max_degradation 1%",
    )
    objective: Objective = "latency"
    label: str = "label"
    output: str | None = None
    metrics: Annotated[tuple[str, ...], Names()] = ()
    slices: Annotated[tuple[str, ...], Names()] = ()
    slice_records: Annotated[int, Between(1)] = 30
    formats: Annotated[tuple[str, ...], Names()] = FORMATS
    trials: Annotated[int, Between(1, 1000)] = 20
    minutes: Annotated[float, Between(0.1)] = 30.0
    fine_tuning_epochs: Annotated[int, Between(0)] = 0
    destination: Destination | None = None
    seconds: Annotated[float, Between(0.1)] = 6.0
    batch_sizes: Annotated[tuple[str, ...], Names()] = ("1", "32")
    threads: Annotated[int, Between(1)] = 1
    max_p99_ms: Annotated[float, Between(0.001)] | None = None
    price: Annotated[float, Between(0)] | None = None
    requests_per_second: Annotated[float, Between(0.001)] | None = None
    records: Annotated[int, Between(8, 10_000)] = 64
    finalists: Annotated[int, Between(1, 10)] = 3
    seed: int = 0
