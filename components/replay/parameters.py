"""Parameters of `replay`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tfopt.component import Between, Reads
from tfopt.components.replay.replay_goals import read_replay_goals
from tfopt.measurement.goals import GOAL_MAPPING
from tfopt.model_store.warm_start import Destination
from tfopt.serving.load_generator import Arrivals


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The requests of a recording, and the times at which they are sent.

    Attributes:
        limit: Number of requests that are read, the first ones of the recording.
        slices: Names of slices: a key of each JSON line, a feature of each record, or an input with one value for each
            record.
        slice_records: Smallest number of records that a slice needs for a goal on it: "disagreement[city=*] max 2%"
            leaves out smaller slices, and the log names them.
        speed: Time runs so many times as fast as it was recorded.
        rate: Requests per second, instead of the recorded times (0); required for a goal on latency if the recording
            has no times.
        arrivals: With a rate, the times of the requests: ``poisson`` for the random times of many independent users,
            ``constant`` for equal distances.
    """

    limit: Annotated[int, Between(1)] = 10_000
    slices: tuple[str, ...] = ()
    slice_records: Annotated[int, Between(1)] = 30
    speed: Annotated[float, Between(0.001)] = 1.0
    rate: Annotated[float, Between(0)] = 0.0  # without None, which KFP's local engine cannot pass on
    arrivals: Arrivals = "poisson"


@dataclass(frozen=True, kw_only=True)
class ReplayTest:
    """Goals and limits of a replay.

    Attributes:
        goals: Conditions that the model must meet, on ``disagreement`` (of the answers), ``p50``, ``p90`` and ``p99``
            (of latency in milliseconds, from the arrival of a request). "disagreement max 0.5%" and "p99 max 20" are
            limits, "p99 max_degradation 10%" allows that much more than the served version has, significantly, and
            "p99 max_regression 10%" is missed only by a model that is significantly slower than that.
        answers: When two answers agree. ``classes``: the largest value is at the same position. ``values``: no value
            differs by more than the tolerance. ``auto``: classes for outputs of several floats, values for a single
            float and for independent probabilities, as of labels or pixels, and equality for integers and text.
        tolerance: The largest difference of two values that agree, as a fraction of the output's range.
        seconds: Duration for which requests are sent to each of the two models to measure latency.
        concurrency: Largest number of requests that a model serves at the same time; others wait.
        layout: As in `push_model`.
        destination: The ``destination`` of `push_model`, whose newest version is the served one, unless ``served`` is
            passed. While it has no version, or the newest one is this model, nothing is compared, and the result of
            ``tested`` is passed on.
        max_seconds: Limit of the whole replay; a model whose replay takes longer is not blessed.
    """

    goals: Annotated[tuple[str, ...], Reads(read_replay_goals, ("disagreement max 0.5%",), GOAL_MAPPING)] = (
        "disagreement max 1%",
        "p99 max_regression 10%",
    )
    answers: Literal["auto", "classes", "values"] = "auto"
    tolerance: Annotated[float, Between(0, 1)] = 0.01
    seconds: Annotated[float, Between(0.1)] = 30.0
    concurrency: Annotated[int, Between(1)] = 4
    layout: Literal["auto", "tf_serving", "triton", "plain"] = "auto"
    destination: Destination | None = None
    max_seconds: Annotated[float, Between(1)] = 1800.0
