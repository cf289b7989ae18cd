"""Save a plan, and check before a run that it still holds: ``tfopt plan -o FILE``, ``tfopt run --plan FILE``."""

import argparse
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tfopt.dag import tracing
from tfopt.dag.dag import Dag
from tfopt.dag.planned_step import PlannedStep
from tfopt.errors import ComponentError
from tfopt.execution import code_digest
from tfopt.process_engine.runner import source_digest
from tfopt.reports import report_schema
from tfopt.storage import staging
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class SavedPlan:
    """The content of the file: the arguments of a run, and what its result depends on."""

    schema_version: ClassVar[int] = 1
    pipeline: str  # name of a shipped pipeline, or absolute path of a ``.py`` file
    engine: str
    root: str
    jobs: int
    beam_pipeline_arg: list[str]
    values: JsonObject  # sources and parameters, checked
    inputs: dict[str, str | None]  # digest of each source; None for one whose store has no digests
    code: dict[str, str]  # digest of the source files of each step's component
    packages: dict[str, str]
    python: str
    steps: dict[str, list[str]]  # what the run does with each step, and why

    def arguments(self) -> dict[str, object]:
        """Return the arguments of ``tfopt run`` that it was made for."""
        names = ("pipeline", "engine", "jobs", "beam_pipeline_arg")
        return {"root": Path(self.root), **{name: getattr(self, name) for name in names}}

    def write(self, file: Path) -> None:
        """Write it."""
        text = json.dumps(report_schema.dump(self), indent=1, ensure_ascii=False)
        staging.replace_file(file, f"{text}\n".encode())


def make_plan(
    arguments: argparse.Namespace, dag: Dag, values: Mapping[str, Any], root: Path, steps: Mapping[str, PlannedStep]
) -> SavedPlan:
    """Return the plan of a run with these arguments."""
    code = {
        name: code_digest.describe(step.component, step.component.check(step.resolve(values)))
        for name, step in dag.steps.items()
    }
    sources = {name: source.type(values[name]) for name, source in dag.sources.items() if values[name] is not None}
    is_file = arguments.pipeline not in tracing.pipelines()
    return SavedPlan(
        pipeline=str(Path(arguments.pipeline).absolute()) if is_file else arguments.pipeline,
        engine=arguments.engine,
        root=str(root),
        jobs=arguments.jobs,
        beam_pipeline_arg=list(arguments.beam_pipeline_arg),
        values=json.loads(json.dumps(dict(values))),
        inputs={name: source_digest(artifact) for name, artifact in sources.items()},
        code={step: part.sources for step, part in code.items()},
        packages=dict(sorted({item for part in code.values() for item in part.packages.items()})),
        python=platform.python_version(),
        steps={name: [step.action, *step.reasons] for name, step in steps.items()},
    )


def check_plan(file: Path, now: SavedPlan) -> None:
    """Raise ComponentError if a run would not do what was planned, with the same inputs and code."""
    saved = report_schema.load(SavedPlan, file)
    if differences := list(_differences(saved, now)):
        received = f"{file}: {'; '.join(differences[:5])}"
        expected = "what was planned: the same inputs, code, packages and earlier results"
        raise ComponentError(received, expected, f"look at a new plan: tfopt plan {saved.pipeline} … -o {file}")


def _differences(saved: SavedPlan, now: SavedPlan) -> Iterator[str]:
    if saved.python != now.python:
        yield f"Python {saved.python} is {now.python} now"
    for what in ("inputs", "code", "packages"):
        before, after = getattr(saved, what), getattr(now, what)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                noun = {"inputs": "the content of", "code": "the code of", "packages": "the package"}[what]
                yield f"{noun} {name} is another one"
            elif what == "inputs" and before[name] is None:
                yield f"the content of {name} cannot be compared: its store has no digests"
    for name, step in now.steps.items():
        if saved.steps.get(name) != step:
            yield f"{name}: {', '.join(step)} (planned: {', '.join(saved.steps.get(name, ['no such step']))})"
