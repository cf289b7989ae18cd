"""From a pipeline function to its `tfopt.dag.dag.Dag`: the function is called once, with a recorder."""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docstring_parser

from tfopt.artifacts.lineage import check_steps
from tfopt.component import Component, Port, find
from tfopt.dag.dag import Dag, PipelineInput, Placeholder, Step, StepOutput, Wire
from tfopt.declaration.parameters import read_parameter
from tfopt.errors import ComponentError, nearest


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
        check_steps(id, _done(self._dag, inputs.get("model")), component.name)
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
            dag.sources[name] = PipelineInput(
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
        if not isinstance(item, StepOutput | PipelineInput):
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


def _done(dag: Dag, model: Any) -> list[dict[str, Any]]:
    """What was done to a model in this DAG before, first to last, as a model card would say."""
    if not isinstance(model, StepOutput):
        return []
    step = dag.steps[model.step]
    made = {"component": step.component.name, "parameters": step.parameters}
    return [*_done(dag, step.inputs.get("model")), made]


def _sample(component: Component, name: str, wire: Any) -> Any:
    """The value to check now: a placeholder's default, or one that passes when only the run knows the value."""
    if not isinstance(wire, Placeholder):
        return wire
    if wire.parameter.default is not None or wire.parameter.optional:
        return wire.parameter.default
    parameter = component.parameters.get(name)
    return parameter.sample() if parameter else None
