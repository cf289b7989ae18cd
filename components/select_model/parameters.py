from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Reads
from tfopt.measurement.goals import GOAL_MAPPING, Objective, read_goals
from tfopt.model_store.run_history import MIN_RUNS
from tfopt.model_store.warm_start import Destination


@dataclass(frozen=True, kw_only=True)
class Criteria:
    """Goals, objective and other criteria of the selection.

    Attributes:
        goals: Conditions that a candidate must meet.
        objective: The metric that the selected model is best at.
        confidence: The value that is compared with a goal. ``interval``: the pessimistic bound of the confidence
            interval, if one was measured, so that a met goal is met significantly. ``estimate``: the measured value
            alone, which proves nothing; the decision states it. ``point`` is the former name of ``estimate``.
        better_than_constant: Reject models that are not significantly better than the constant model, which answers
            every record with the most frequent class or the median of the labels.
        destination: The ``destination`` of `push_model`, with the metrics of earlier runs. No regression is reported
            without it, or if fewer than three runs in it were blessed.
        recent_runs: Number of the most recent blessed runs to compare with.
        watch: Goals that only produce a warning when missed; they do not affect the blessing. The selected model is
            compared with earlier selected models, the baseline with earlier baselines.
        slice_records: Smallest number of records that a slice needs for a goal on it; "accuracy[city=*] threshold 0.9"
            leaves out smaller slices, and the log names them.
        layout: As in `push_model` and `validate_serving`, which must get the same value: a model that its server does
            not load (another format, or a file after a preprocessing SavedModel) is not selected, whatever its metrics,
            so that the best of the other models is pushed.
    """

    goals: Annotated[tuple[str, ...], Reads(read_goals, ("quality max_degradation 1%",), GOAL_MAPPING)] = (
        "quality max_degradation 1%",
    )
    objective: Objective = "latency"
    confidence: Literal["interval", "estimate", "point"] = "interval"
    better_than_constant: bool = True
    destination: Destination | None = None
    recent_runs: Annotated[int, Between(MIN_RUNS, 1000)] = 10
    watch: Annotated[tuple[str, ...], Reads(read_goals, ("latency max_regression 5%",), GOAL_MAPPING)] = (
        "quality max_regression 1%",
        "latency max_regression 10%",
        "size max_regression 10%",
    )
    slice_records: Annotated[int, Between(1)] = 30
    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto"
