"""A DAG: steps, their wiring and parameters, the same for every engine.

    def optimize(steps: Steps, model: Input[KerasModel], *, precision: Inherited = "int8") -> dict[str, object]:
        folded = steps.fold_batch_norm(model=model)
        lite = steps.export_tflite(model=folded.outputs["folded"], precision=precision)
        return {"lite": lite.outputs["exported"]}

`tfopt.dag.tracing` builds it by calling the pipeline function; wiring and values are checked before anything runs.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tfopt.artifacts import Artifact, Evaluation
from tfopt.component import Component
from tfopt.declaration.parameters import Parameter
from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.measurement.goals import read_goals
from tfopt.measurement.metric_names import check_goal_metrics, check_load, check_load_metric
from tfopt.storage.remote_files import is_remote


@dataclass(frozen=True)
class PipelineInput:
    """An artifact from outside the DAG; its path is passed when the DAG runs."""

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
    """A pipeline parameter in place of a step's parameter; its value is known when the DAG runs."""

    parameter: Parameter

    def __bool__(self) -> bool:
        """Raise ComponentError: the DAG may not depend on a value that is known only at run time."""
        raise self._misused("used in a condition")

    def __format__(self, spec: str) -> str:
        """Raise ComponentError, like `__bool__`."""
        raise self._misused("formatted into text")

    def _misused(self, how: str) -> ComponentError:
        name = self.parameter.name
        received = f"pipeline parameter {name} is {how}"
        return ComponentError(received, "a parameter passed to a step as it is", f"write steps.NAME(…={name})")


LAYOUT = "layout"  # the parameter of `select_model`, `validate_serving` and `push_model`
# Parameters of `evaluate` that its metrics depend on; a component without one of them evaluates with this value.
EVALUATED: dict[str, object] = {"task": "auto", "top_k": 5, "metrics": [], "slices": []}
LIMIT, LOADED = "max_p99_ms", ("max_p99_ms", "rate", "price")  # parameters of `benchmark` that some metrics depend on
Value = StepOutput | PipelineInput
Wire = Value | tuple[Value, ...]


@dataclass(frozen=True)
class Step:
    """One component in a DAG, with the wiring of its inputs and the values of its parameters.

    Without the optional inputs in ``requires`` it is left out, and so are the steps that use its outputs.
    """

    id: str
    component: Component
    inputs: Mapping[str, Wire]
    parameters: Mapping[str, Any]
    requires: frozenset[str] = frozenset()

    @property
    def outputs(self) -> dict[str, Any]:
        """A `StepOutput` for each output; typed as Any, because in a pipeline it stands for the artifact."""
        first = next((wire for wire in self.inputs.values() if not isinstance(wire, tuple)), None)
        return {
            name: StepOutput(self.id, name, port.kind(first.type) if first else port.type)
            for name, port in self.component.outputs.items()
        }

    @property
    def used_outputs(self) -> list[StepOutput]:
        """The outputs of earlier steps among its inputs."""
        wires = (wire for listed in self.listed_inputs.values() for wire in listed)
        return [wire for wire in wires if isinstance(wire, StepOutput)]

    @property
    def listed_inputs(self) -> dict[str, list[Value]]:
        """Return what each input gets, also an input of one artifact as a list."""
        return {name: list(wire) if isinstance(wire, tuple) else [wire] for name, wire in self.inputs.items()}

    def resolve(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters with the pipeline's values in place of placeholders."""
        return {
            name: values[value.parameter.name] if isinstance(value, Placeholder) else value
            for name, value in self.parameters.items()
        }

    def knows(self, name: str, values: Mapping[str, Any]) -> bool:
        """Return False for a parameter whose value only the run knows."""
        value = self.parameters.get(name)
        return not isinstance(value, Placeholder) or value.parameter.name in values

    def value(self, name: str, values: Mapping[str, Any], default: object = None) -> Any:
        """Return a parameter's value; the default if there is no such parameter, None if only the run knows."""
        declared = self.component.parameters.get(name)
        if declared is None:
            return default
        value = self.parameters.get(name, declared.default)
        if isinstance(value, Placeholder):
            value = values.get(value.parameter.name)
        return declared.names.split(list(value)) if declared.names and value is not None else value


@dataclass
class Dag:
    """A pipeline as data."""

    name: str
    description: str
    sources: dict[str, PipelineInput]
    parameters: dict[str, Parameter]
    steps: dict[str, Step] = field(default_factory=dict)
    outputs: dict[str, StepOutput] = field(default_factory=dict)

    def with_sources(self, values: Mapping[str, Any]) -> "Dag":
        """Return the DAG of a run: without optional sources that have no value, and the steps that require them.

        What is wired to an output of such a step gets its input of the same type instead, or nothing if it has none,
        or if the step lacks an optional input that it requires here (`Step.requires`).
        """
        absent = {source for source in self.sources.values() if source.optional and values.get(source.name) is None}
        replaced: dict[Value, Value | None] = dict.fromkeys(absent)
        steps: dict[str, Step] = {}
        for id, step in self.steps.items():
            inputs = {name: wire for name, old in step.inputs.items() if (wire := _replace(old, replaced))}
            ports = step.component.inputs.values()
            if step.requires - set(inputs):
                replaced |= dict.fromkeys(step.outputs.values())
            elif any(not port.optional and port.name not in inputs for port in ports):
                wires = [wire for wire in inputs.values() if not isinstance(wire, tuple)]
                for output in step.outputs.values():
                    replaced[output] = next((wire for wire in wires if wire.type is output.type), None)
            else:
                steps[id] = replace(step, inputs=inputs)
        returned = {name: replaced.get(output, output) for name, output in self.outputs.items()}
        outputs = {name: output for name, output in returned.items() if isinstance(output, StepOutput)}
        return replace(self, steps=steps, outputs=outputs)

    @property
    def has_concurrent_steps(self) -> bool:
        """Return True if a step works in child processes (see ``concurrent`` of `tfopt.component`)."""
        return any(step.component.concurrent for step in self.steps.values())

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the checked value of every source and parameter; an engine calls this before it starts a step.

        Raises:
            ComponentError: If a name is unknown or missing, a path has no artifact of its type, or a step does not
                allow a value.
        """
        for name in arguments:
            if name not in self.sources and name not in self.parameters:
                expected = "a name of its signature"
                raise ComponentError(f"{self.name}: {name}", expected, nearest(name, [*self.sources, *self.parameters]))
        missing = [name for name, source in self.sources.items() if name not in arguments and not source.optional]
        missing += [name for name, parameter in self.parameters.items() if name not in arguments and parameter.required]
        if missing:
            fix = "pass " + " ".join(f"--set {name}=…" for name in missing)
            raise ComponentError(f"{self.name}: no {', '.join(missing)}", "a value for each", fix)
        values = {name: resolve_source(source, arguments.get(name)) for name, source in self.sources.items()}
        values |= {name: p.check(arguments.get(name, p.default), self.name) for name, p in self.parameters.items()}
        for step in self.steps.values():
            step.component.check(step.resolve(values))
        self.check_values(values)
        return values

    def check_values(self, values: Mapping[str, Any]) -> None:
        """Raise ComponentError for values of steps that contradict each other.

        What depends on a parameter of the pipeline without a value is not checked.
        """
        self._check_goals(values)
        self._check_loads(values)
        for step in self.steps.values():
            layout = step.value(LAYOUT, values)
            for wire in step.used_outputs:
                check_same_layout(step.id, layout, wire.step, self.steps[wire.step].value(LAYOUT, values))

    def _check_goals(self, values: Mapping[str, Any]) -> None:
        """Raise ComponentError for a goal whose metric the evaluation that it is checked on cannot have.

        A goal is not checked if a parameter of the pipeline that it depends on has no value.
        """
        for step in self.steps.values():
            parameters = step.component.parameters.items()
            goals = [name for name, declared in parameters if declared.reads and declared.reads.parse is read_goals]
            evaluating = self._evaluating(step)
            if not goals or evaluating is None:
                continue
            measured = {name: evaluating.value(name, values, default) for name, default in EVALUATED.items()}
            for name in goals:
                texts = step.value(name, values)
                if texts is not None and None not in measured.values():
                    try:
                        check_goal_metrics(read_goals(texts), **measured)
                    except ComponentError as error:
                        received = f"{step.id}: {name}: {error.received}"
                        raise ComponentError(received, error.expected, error.fix) from None

    def _check_loads(self, values: Mapping[str, Any]) -> None:
        """Raise ComponentError for goals and objectives on a node under load that their benchmark does not measure."""
        for step in self.steps.values():
            wire = step.inputs.get("benchmark")
            benchmark = self.steps[wire.step] if isinstance(wire, StepOutput) else step
            if LIMIT not in benchmark.component.parameters or not all(benchmark.knows(name, values) for name in LOADED):
                continue
            loads = {name: value for name in LOADED if (value := benchmark.value(name, values))}
            if benchmark is step:
                check_load(loads.pop(LIMIT, 0.0), **loads)
                continue
            objective = step.value("objective", values)
            check_load_metric(objective, loads, f"{step.id}: objective={objective}")
            for goal in read_goals(step.value("goals", values) or []):
                check_load_metric(goal.metric, loads, f"{step.id}: goal {goal.text!r}")

    def _evaluating(self, step: Step) -> Step | None:
        """Return the step whose evaluation the goals of a step are checked on; None if it has none that is known."""
        wires = [wire for wire in step.inputs.values() if isinstance(wire, StepOutput) and wire.type is Evaluation]
        if wires:
            return self.steps[wires[0].step]
        return step if {"metrics", "objective"} <= step.component.parameters.keys() else None


def _replace(wire: Wire, replaced: Mapping[Value, Value | None]) -> Wire | None:
    """Return a wire with other values in place of some; None if none is left."""
    if isinstance(wire, tuple):
        return tuple(value for old in wire if (value := replaced.get(old, old))) or None
    return replaced.get(wire, wire)


def check_same_layout(step: str, layout: object, earlier: str, other: object) -> None:
    """Raise ComponentError if a step and an earlier one, whose output it gets, have different serving layouts.

    The model that `select_model` blesses for one layout may be one that another layout cannot hold. The layout of a
    step without one, or with one that only the run knows, is None.
    """
    if None not in (layout, other) and layout != other:
        received = f"{step}: layout={layout!r}, but {earlier}, whose output it gets, has layout={other!r}"
        raise ComponentError(received, "one layout, that of your server", f"pass layout={layout!r} to both")


def resolve_source(source: PipelineInput, path: Any) -> str | None:
    """Return the absolute path of a source, after checking its content, or its remote URI."""
    if path is None:
        return None
    uri = os.fspath(path)
    return uri if is_remote(uri) else str(source.type.open(Path(uri).absolute()).path)
