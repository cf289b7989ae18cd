"""The result of a step in a run on this machine, the same for every engine."""

from contextvars import ContextVar
from dataclasses import dataclass, field

from tfopt.artifacts import Artifact, Decision, notebook_html
from tfopt.formatting import duration

running_step: ContextVar[str] = ContextVar("running step", default="")  # of a thread next to others; log lines name it


@dataclass
class Outcome:
    """The result of one step of a finished run."""

    reused: bool
    seconds: float
    outputs: dict[str, Artifact]
    # digests of the artifacts of each input, comparable between runs of one engine; None where the engine has none
    inputs: dict[str, list[str | None]] = field(default_factory=dict)
    digests: dict[str, str | None] = field(default_factory=dict)  # of the outputs


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
