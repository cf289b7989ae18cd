"""A DAG, read once from a pipeline function and the same for every engine.

    def optimize(steps: Steps, model: Input[KerasModel], *, precision: str = "int8") -> None:
        folded = steps.fold_batch_norm(model=model)
        steps.export_tflite(model=folded.outputs["folded"], precision=precision)

`trace` calls the function with a recorder: wiring and values are checked right there, before anything runs.
"""

import importlib.util
import inspect
import pkgutil
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docstring_parser

from tfopt.artifacts import Artifact
from tfopt.component import Component, Port, find
from tfopt.errors import ComponentError, nearest
from tfopt.parameters import Parameter, read_parameter


@dataclass(frozen=True)
class Source:
    """An artifact from outside the DAG, given by path when it runs."""

    name: str
    type: type[Artifact]
    optional: bool
    description: str


@dataclass(frozen=True)
class Reference:
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


Value = Reference | Source
Wire = Value | tuple[Value, ...]


@dataclass(frozen=True)
class Step:
    """One component in a DAG, with what each input and parameter is wired to."""

    id: str
    component: Component
    inputs: Mapping[str, Wire]
    parameters: Mapping[str, Any]

    @property
    def outputs(self) -> dict[str, Reference]:
        """What other steps can take, by name."""
        return {name: Reference(self.id, name, port.type) for name, port in self.component.outputs.items()}


@dataclass
class Dag:
    """A traced pipeline."""

    name: str
    description: str
    sources: dict[str, Source]
    parameters: dict[str, Parameter]
    steps: dict[str, Step] = field(default_factory=dict)

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every source and parameter with its checked value, as an engine needs before it starts.

        Raises:
            ComponentError: On an unknown name, a missing one, or a value that some step would refuse.
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
        values = {name: given.get(name) for name in self.sources}
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


class Steps:
    """The recorder a pipeline function is called with: ``steps.COMPONENT(name=value, …)`` adds a step."""

    def __init__(self, dag: Dag) -> None:
        """Record into this DAG."""
        self._dag = dag

    def __getattr__(self, name: str) -> Callable[..., Step]:
        """Find a shipped component by name."""
        return lambda **wires: self(find(name), **wires)

    def __call__(self, component: Component, *, id: str | None = None, **wires: Any) -> Step:
        """Add a step of any component, also one of your own.

        Args:
            component: What to run.
            id: The step's name; the component's, numbered from the second use on, when left out.
            wires: Its inputs (outputs of steps, or sources) and parameters (values, or pipeline parameters).

        Raises:
            ComponentError: On wrong wiring or a value the component refuses.
        """
        count = sum(step.component is component for step in self._dag.steps.values())
        id = id or (f"{component.name}_{count + 1}" if count else component.name)
        if id in self._dag.steps:
            raise ComponentError(f"two steps named {id}", "one name per step", "pass another id=…")
        given = {name: wires.pop(name) for name in component.inputs if name in wires}
        inputs = {port.name: _wire(component, port, given.get(port.name)) for port in component.inputs.values()}
        component.check({name: _sample(component, name, wire) for name, wire in wires.items()})
        step = Step(
            id, component, {name: wire for name, wire in inputs.items() if wire is not None and wire != ()}, wires
        )
        self._dag.steps[id] = step
        return step


def trace(function: Callable[..., None]) -> Dag:
    """Call a pipeline function with a recorder and return what it built."""
    hints = typing.get_type_hints(function, include_extras=True)
    doc = docstring_parser.parse(function.__doc__ or "")
    descriptions = {item.arg_name: " ".join((item.description or "").split()) for item in doc.params}
    dag = Dag(function.__name__, doc.short_description or "", {}, {})
    arguments: dict[str, Any] = {}
    for name, given in list(inspect.signature(function).parameters.items())[1:]:
        if given.kind is given.KEYWORD_ONLY:
            required = given.default is given.empty
            dag.parameters[name] = read_parameter(
                name, hints[name], None if required else given.default, required, descriptions.get(name, "")
            )
            arguments[name] = Placeholder(dag.parameters[name])
        else:
            kind = next(part for part in (hints[name], *typing.get_args(hints[name])) if hasattr(part, "__metadata__"))
            dag.sources[name] = Source(
                name, typing.get_args(kind)[0], given.default is None, descriptions.get(name, "")
            )
            arguments[name] = dag.sources[name]
    function(Steps(dag), **arguments)
    return dag


def load(pipeline: str) -> Dag:
    """Trace a pipeline by its shipped name, or from a Python file whose function has the file's name.

    Raises:
        ComponentError: When there is no such pipeline or file.
    """
    if pipeline.endswith(".py"):
        path = Path(pipeline)
        if not path.is_file():
            raise ComponentError(
                f"{pipeline}: no such file", "a Python file with a pipeline function", "check the path"
            )
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader  # a .py file always has a loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # so that components declared in that file are found by their path
        spec.loader.exec_module(module)
    elif pipeline in pipelines():
        module = importlib.import_module(f"tfopt.pipelines.{pipeline}")
    else:
        raise ComponentError(
            f"pipeline {pipeline!r}", "a shipped pipeline or a .py file", nearest(pipeline, pipelines())
        )
    name = Path(pipeline).stem
    if not hasattr(module, name):
        raise ComponentError(
            f"{pipeline}: no function {name}", "a function named as its file", f"write def {name}(steps, …)"
        )
    return trace(getattr(module, name))


def pipelines() -> list[str]:
    """The names of the shipped pipelines."""
    import tfopt.pipelines

    return sorted(module.name for module in pkgutil.iter_modules(tfopt.pipelines.__path__))


def _wire(component: Component, port: Port, given: Any) -> Wire | None:
    if given is None or given == []:
        if port.optional:
            return None
        raise ComponentError(f"{component.name}: no {port.name}", port.type.__name__, f"pass {port.name}=…")
    items = given if isinstance(given, list | tuple) else [given]
    for item in items:
        if not isinstance(item, Reference | Source):
            raise ComponentError(
                f"{component.name}: {port.name}={item!r}",
                "an output of a step, or a source of the pipeline",
                'pass step.outputs["NAME"]',
            )
        if not issubclass(item.type, port.type):
            raise ComponentError(
                f"{component.name}: {port.name} is a {item.type.__name__}",
                port.type.__name__,
                f"wire a {port.type.__name__} there",
            )
    if isinstance(given, list | tuple) != port.many:
        raise ComponentError(
            f"{component.name}: {port.name} is {'one' if port.many else 'a list'}",
            "a list" if port.many else "one artifact",
            "add or drop the brackets",
        )
    return tuple(items) if port.many else items[0]


def _sample(component: Component, name: str, wire: Any) -> Any:
    """The value to check now: a placeholder's default, or one that passes when only the run knows the value."""
    if not isinstance(wire, Placeholder):
        return wire
    if wire.parameter.default is not None or wire.parameter.optional:
        return wire.parameter.default
    parameter = component.parameters.get(name)
    return parameter.sample() if parameter else None
