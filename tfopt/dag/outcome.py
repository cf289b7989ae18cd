"""The result of a step in a run on this machine, and the log lines of its progress: the same for every engine.

The records have the step as the attribute ``step_started`` or ``step_ended``, for handlers that show the progress.
"""

import logging
from contextvars import ContextVar
from dataclasses import dataclass, field

from tfopt.artifacts import Artifact, Decision
from tfopt.dag.dag import Dag
from tfopt.formatting import duration
from tfopt.reports import notebook_html

log = logging.getLogger(__name__)

running_step: ContextVar[str] = ContextVar("running step", default="")  # of a thread next to others; log lines name it


@dataclass
class Outcome:
    """The result of one step of a finished run."""

    reused: bool
    seconds: float
    outputs: dict[str, Artifact]
    # digests of the artifacts of each input, comparable between runs of one engine; None where the engine has none
    inputs: dict[str, list[str | None]] = field(default_factory=dict)


class RunOutcome(dict[str, Outcome]):
    """The result of each step of a finished run, in order; a notebook shows the steps and the page of the decision."""

    def _repr_html_(self) -> str:
        columns = ["step", "result", "outputs"]
        rows = []
        for step, outcome in self.items():
            outputs = "\n".join(f"{name}: {artifact.uri}" for name, artifact in outcome.outputs.items())
            rows.append([step, "reused" if outcome.reused else duration(outcome.seconds), outputs])
        artifacts = [artifact for outcome in self.values() for artifact in outcome.outputs.values()]
        decisions = [artifact._repr_html_() for artifact in artifacts if isinstance(artifact, Decision)]
        return "".join([notebook_html.table(f"Run of {len(self)} steps", columns, rows), *decisions])


def log_start(dag: Dag, step: str) -> None:
    """Log that a step starts, with its number in the DAG."""
    log.info("%s %s …", _number(dag, step), step, extra={"step_started": step})


def log_end(dag: Dag, step: str, *, reused: bool, seconds: float) -> None:
    """Log that a step has ended, with its time unless the outputs of an earlier run are reused."""
    facts = {"step_ended": step, "step_reused": reused}
    log.info("%s %s: %s", _number(dag, step), step, "reused" if reused else f"done in {seconds:.1f} s", extra=facts)


def _number(dag: Dag, step: str) -> str:
    return f"[{list(dag.steps).index(step) + 1}/{len(dag.steps)}]"
