"""Describe what a run would do with a step, and why: the same for the plans of every engine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tfopt.component import Component
from tfopt.dag.dag import StepOutput, Value

Action = Literal["reuse", "run", "depends"]
NO_RESULT, ALWAYS = "no earlier result", "it runs in every run"
ATTEMPT_FAILED, OUTPUTS_CHANGED = "the earlier attempt failed", "its outputs were changed or removed"


@dataclass(frozen=True)
class PlannedStep:
    """The part of a plan for one step."""

    # ``reuse``; ``run``; or ``depends``: the step runs unless the steps before it, which run, make the same outputs as
    # in an earlier run
    action: Action
    reasons: list[str]  # why it is not reused for certain
    seconds: float | None  # the time of its newest execution in the run's folder; None if there is none
    outputs: Mapping[str, str] = field(default_factory=dict)


def expected_time(steps: Mapping[str, PlannedStep]) -> tuple[float, int]:
    """Return the seconds that steps took before which are not reused, and the number of those that never ran."""
    times = [step.seconds for step in steps.values() if step.action != "reuse"]
    return sum(time or 0 for time in times), times.count(None)


def why_run(
    component: Component, differences: Iterable[list[str]], unknown: Iterable[tuple[str, Value]]
) -> tuple[list[str], list[str]]:
    """Return why a step is run again, and the steps before it on whose outputs it otherwise depends.

    The earlier execution that differs least is reported: an input that does not exist yet may turn out to be that of
    any. Inputs of unknown content have the names under which they are reported.
    """
    if component.cache == "never":
        return [ALWAYS], []
    reasons = min(differences, key=len, default=None)
    if reasons is None:
        return [NO_RESULT], []
    unknown = list(unknown)
    remote = [f"{name} has no digest in its store" for name, value in unknown if not isinstance(value, StepOutput)]
    return reasons + remote, [value.step for _, value in unknown if isinstance(value, StepOutput)]


def after(steps: Sequence[str]) -> str:
    """Return the reason of a step whose inputs do not exist yet, from the steps that make them.

    >>> after(["train"]), after(["a", "b", "c", "d"])
    ('after train', 'after a, b and 2 others')
    """
    names = list(dict.fromkeys(steps))
    listed = ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} others"
    return f"after {listed}"
