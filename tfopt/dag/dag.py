"""A DAG, read once from a pipeline function and the same for every engine.

    def optimize(steps: Steps, model: Input[KerasModel], *, precision: str = "int8") -> None:
        folded = steps.fold_batch_norm(model=model)
        steps.export_tflite(model=folded.outputs["folded"], precision=precision)

`tfopt.dag.tracing` calls the function with a recorder: wiring and values are checked right there, before anything runs.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfopt.artifacts import Artifact
from tfopt.artifacts.storage import is_remote
from tfopt.component import Component
from tfopt.declaration.parameters import Parameter
from tfopt.errors import ComponentError, nearest


@dataclass(frozen=True)
class PipelineInput:
    """An artifact from outside the DAG, given by path when it runs."""

    name: str
    type: type[Artifact]
    optional: bool
    description: str


@dataclass(frozen=True)
class StepOutput:
    """One output of one step."""

    step: str
    output: str
    type: type[Artifact]


@dataclass(frozen=True)
class Placeholder:
    """A pipeline parameter, handed on whole to a step; its value comes when the DAG runs."""

    parameter: Parameter

    def __bool__(self) -> bool:
        """Refuse: the DAG may not depend on a value that Kubeflow only knows at run time."""
        raise self._misused("a decision on it")

    def __format__(self, spec: str) -> str:
        """Refuse, as `__bool__` does."""
        raise self._misused("text made from it")

    def _misused(self, how: str) -> ComponentError:
        name = self.parameter.name
        return ComponentError(
            f"pipeline parameter {name}: {how}", "a parameter handed on whole to a step", f"write steps.NAME(…={name})"
        )


Value = StepOutput | PipelineInput
Wire = Value | tuple[Value, ...]


@dataclass(frozen=True)
class Step:
    """One component in a DAG, with what each input and parameter is wired to."""

    id: str
    component: Component
    inputs: Mapping[str, Wire]
    parameters: Mapping[str, Any]

    @property
    def outputs(self) -> dict[str, Any]:
        """A `StepOutput` for each output; typed as Any, since in a DAG it stands for the artifact itself."""
        first = next((wire for wire in self.inputs.values() if not isinstance(wire, tuple)), None)
        return {
            name: StepOutput(self.id, name, port.kind(first.type) if first else port.type)
            for name, port in self.component.outputs.items()
        }


@dataclass
class Dag:
    """A traced pipeline."""

    name: str
    description: str
    sources: dict[str, PipelineInput]
    parameters: dict[str, Parameter]
    steps: dict[str, Step] = field(default_factory=dict)

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every source and parameter with its checked value, as an engine needs before it starts.

        Raises:
            ComponentError: On an unknown name, a missing one, a path with nothing of its type, or a value that some
                step would refuse.
        """
        for name in given:
            if name not in self.sources and name not in self.parameters:
                raise ComponentError(
                    f"{self.name}: {name}", "a name of its signature", nearest(name, [*self.sources, *self.parameters])
                )
        missing = [name for name, source in self.sources.items() if name not in given and not source.optional]
        missing += [name for name, parameter in self.parameters.items() if name not in given and parameter.required]
        if missing:
            raise ComponentError(
                f"{self.name}: no {', '.join(missing)}",
                "a value for each",
                "pass " + " ".join(f"--set {name}=…" for name in missing),
            )
        values = {name: _there(source, given.get(name)) for name, source in self.sources.items()}
        values |= {name: p.check(given.get(name, p.default), self.name) for name, p in self.parameters.items()}
        for step in self.steps.values():
            step.component.check(self.resolve(step, values))
        return values

    def resolve(self, step: Step, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a step's parameters with the pipeline's values in place of placeholders."""
        return {
            name: values[value.parameter.name] if isinstance(value, Placeholder) else value
            for name, value in step.parameters.items()
        }


def _there(source: PipelineInput, path: Any) -> str | None:
    """The absolute path of a source that exists and holds what it should, or its remote address."""
    if path is None:
        return None
    uri = os.fspath(path)
    return uri if is_remote(uri) else str(source.type.open(Path(uri).absolute()).path)
