"""The result of a step in a run on this machine, and the log lines of its progress: the same for every engine.

The records have the step as the attribute ``step_started`` or ``step_ended``, for handlers that show the progress.
"""

import logging
from dataclasses import dataclass, field

from tfopt.artifacts import Artifact
from tfopt.dag.dag import Dag

log = logging.getLogger(__name__)


@dataclass
class Outcome:
    """The result of one step of a finished run.

    Attributes:
        reused: True if the outputs are those of an earlier run.
        seconds: The time of the step in this run.
        outputs: The step's artifacts by name.
        inputs: Digests of the artifacts of each input, comparable between runs of one engine; None where the engine
            has none.
    """

    reused: bool
    seconds: float
    outputs: dict[str, Artifact]
    inputs: dict[str, list[str | None]] = field(default_factory=dict)


def log_start(dag: Dag, step: str) -> None:
    """Log that a step starts, with its number in the DAG."""
    log.info("%s %s …", _number(dag, step), step, extra={"step_started": step})


def log_end(dag: Dag, step: str, *, reused: bool, seconds: float) -> None:
    """Log that a step has ended, with its time unless the outputs of an earlier run are reused."""
    facts = {"step_ended": step, "step_reused": reused}
    log.info("%s %s: %s", _number(dag, step), step, "reused" if reused else f"done in {seconds:.1f} s", extra=facts)


def _number(dag: Dag, step: str) -> str:
    return f"[{list(dag.steps).index(step) + 1}/{len(dag.steps)}]"
