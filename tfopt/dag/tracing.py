"""Trace a pipeline function into a `tfopt.dag.dag.Dag`: call it once with an object that records its steps."""

import contextlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import traceback
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import docstring_parser

import tfopt.pipelines
from tfopt.artifacts import Artifact, LineageStep
from tfopt.component import Component, Port
from tfopt.dag.dag import Dag, PipelineInput, Placeholder, Step, StepOutput, Wire
from tfopt.declaration.library import ComponentCalls
from tfopt.declaration.parameters import DeclaredArgument, Parameter, group_arguments, inherit, read_descriptions
from tfopt.declaration.step_order import check_steps
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError

# A pipeline parameter declared so has the type, choices, range, parser and description of the step parameter that it is
# passed to, and its default unless the pipeline sets another one.
Inherited = Annotated[Any, "inherited"]

STEP_ID = r"[a-z][a-z0-9_-]{0,62}"

if TYPE_CHECKING:
    from tfopt.dag.component_steps import ComponentSteps  # a generated stub
else:
    ComponentSteps = object


class Steps(ComponentCalls, ComponentSteps):
    """Records the steps of a pipeline: ``steps.COMPONENT(name=value, …)`` adds one."""

    def __init__(self, dag: Dag) -> None:
        """Record into this DAG."""
        self._dag = dag

    def __call__(
        self, component: Component, *, id: str | None = None, requires: Collection[str] = (), **wires: Any
    ) -> Step:
        """Add a step of any component, including your own.

        Args:
            component: The component to run.
            id: The name of the step; by default the component's name, numbered from its second use on.
            requires: Names of optional inputs: in a run without one of them, the step is left out, and so are the steps
                that need its outputs; lists of models are shorter then.
            wires: Its inputs (outputs of steps, or pipeline inputs) and parameters (values, or pipeline parameters).

        Raises:
            ComponentError: If the wiring is wrong or the component does not allow a value.
        """
        count = sum(step.component is component for step in self._dag.steps.values())
        id = id or (f"{component.name}_{count + 1}" if count else component.name)
        if not re.fullmatch(STEP_ID, str(id)):  # it becomes the name of a folder, and of a task on Kubeflow
            name = re.sub("[^a-z0-9]+", "_", str(id).lower()).strip("_0123456789")[:60]
            fix = f"write id={name or component.name!r}"
            raise ComponentError(f"a step named {id!r}", "small letters, digits and underscores, a letter first", fix)
        if id in self._dag.steps:
            raise ComponentError(f"two steps named {id}", "one name per step", "pass another id=…")
        artifacts = {name: wires.pop(name) for name in component.inputs if name in wires}
        inputs = {port.name: _wire(component, port, artifacts.get(port.name)) for port in component.inputs.values()}
        component.check({name: _sample(component, name, wire) for name, wire in wires.items()})
        check_steps(id, _earlier_components(self._dag, inputs.get("model")), component)
        present = {name: wire for name, wire in inputs.items() if wire is not None and wire != ()}
        if unknown := sorted(set(requires) - {port.name for port in component.inputs.values() if port.optional}):
            optional = [port.name for port in component.inputs.values() if port.optional]
            fix = f"one of {', '.join(optional)}" if optional else f"leave requires out: {component.name} has none"
            raise ComponentError(f"{id}: requires={unknown}", "names of optional inputs", fix)
        self._dag.steps[id] = step = Step(id, component, present, wires, frozenset(requires))
        return step


def trace(function: Callable[..., Mapping[str, object] | None]) -> Dag:
    """Call a pipeline function with a recorder and return its DAG.

    Raises:
        ComponentError: If a step is wired wrongly, the function returns anything but outputs of steps, or an inherited
            parameter is passed to no step, or to steps that disagree on its type or default.
    """
    doc = docstring_parser.parse(function.__doc__ or "")
    dag = Dag(function.__name__, doc.short_description or "", {}, {})
    arguments = _arguments(function, dag)
    dag.outputs = _returned_outputs(dag, function(Steps(dag), **arguments))
    dag.parameters = {name: _inherited(dag, parameter) for name, parameter in dag.parameters.items()}
    placeholders = {name: Placeholder(parameter) for name, parameter in dag.parameters.items()}
    dag.steps = {id: replace(step, parameters=step.resolve(placeholders)) for id, step in dag.steps.items()}
    dag.check_values({})  # those that depend on no parameter of the pipeline
    return dag


def _returned_outputs(dag: Dag, returned: Any) -> dict[str, StepOutput]:
    """Check what a pipeline function returns: the artifacts of its steps that another pipeline can use, by name."""
    outputs = {} if returned is None else returned
    if not isinstance(outputs, Mapping) or not all(
        re.fullmatch("[a-z][a-z0-9_]*", str(name)) and isinstance(output, StepOutput) and output.step in dag.steps
        for name, output in outputs.items()
    ):
        received = f"{dag.name} returns {returned!r}"
        expected = "outputs of its steps by name, in small letters, or nothing"
        raise ComponentError(received, expected, 'write return {"selected": step.outputs["selected"]}')
    return dict(outputs)


def _arguments(function: Callable[..., Mapping[str, object] | None], dag: Dag) -> dict[str, object]:
    """Declare the pipeline's inputs and parameters in the DAG; return what the function is called with."""
    hints = typing.get_type_hints(function, include_extras=True)
    descriptions = read_descriptions(function.__doc__ or "")
    arguments: dict[str, object] = {}
    for name, argument in list(inspect.signature(function).parameters.items())[1:]:
        description = descriptions.get(name, "")
        parts = (hints.get(name), *typing.get_args(hints.get(name)))  # the annotation may be one side of a union
        annotation: Any = next((part for part in parts if hasattr(part, "__metadata__")), None)
        if argument.kind is not argument.KEYWORD_ONLY:
            artifact_type = _input_type(f"{function.__name__}: {name}", hints.get(name), annotation)
            optional = argument.default is None
            arguments[name] = dag.sources[name] = PipelineInput(name, artifact_type, optional, description)
        elif annotation and annotation.__metadata__ == ("group",):
            group = annotation.__origin__
            arguments[name] = group(**{field.name: _declare(dag, field) for field in group_arguments(group)})
        else:
            default = MISSING if argument.default is argument.empty else argument.default
            arguments[name] = _declare(dag, DeclaredArgument(name, hints.get(name), default, description))
    return arguments


def _input_type(where: str, hint: Any, annotation: Any) -> type[Artifact]:
    """Return the artifact type of a pipeline input, whose hint is ``Input[TYPE]``."""
    artifact_type = next(iter(typing.get_args(annotation)), None)
    if not (isinstance(artifact_type, type) and issubclass(artifact_type, Artifact)):
        declared = "without a type" if hint is None else f"as {getattr(hint, '__name__', hint)}"
        fix = "write data: Input[Files], or place it after *, if it is a parameter"
        raise ComponentError(f"{where} is declared {declared}", "Input[…] of an artifact type", fix)
    return artifact_type


def _declare(dag: Dag, argument: DeclaredArgument) -> Placeholder:
    """Add a parameter to the DAG; the type of an inherited one is set when its step is known."""
    if argument.hint is None:
        received = f"{dag.name}: {argument.name} has no type"
        raise ComponentError(received, "a type, or Inherited", f"write {argument.name}: Inherited = …")
    if argument.hint == Inherited:
        required = argument.default is MISSING
        default = None if required else list(argument.default) if type(argument.default) is tuple else argument.default
        parameter = Parameter(argument.name, None, default, required, False, (), None, None, argument.description)
    else:
        parameter = argument.read()
    dag.parameters[argument.name] = parameter
    return Placeholder(parameter)


def _inherited(dag: Dag, parameter: Parameter) -> Parameter:
    """Complete a pipeline parameter from the step parameters that it is passed to."""
    reached = [
        step.component.parameters[name]
        for step in dag.steps.values()
        for name, value in step.parameters.items()
        if isinstance(value, Placeholder) and value.parameter.name == parameter.name
    ]
    if parameter.type is None:
        parameter = _typed(dag, parameter, reached)
    for other in reached:
        parameter = inherit(parameter, other)
    return parameter


def _typed(dag: Dag, parameter: Parameter, reached: list[Parameter]) -> Parameter:
    """Give an inherited parameter the type of the step parameters, and their default unless it has its own."""
    where = f"{dag.name}: {parameter.name}"
    if not reached:
        raise ComponentError(f"{where} is passed to no step", "a step that takes it", "remove it, or pass it to a step")
    first = reached[0]
    if any(other.type != first.type for other in reached):
        raise ComponentError(f"{where} reaches parameters of several types", "one type", "declare its type")
    if not parameter.required:
        optional = parameter.default is None and all(other.optional for other in reached)
        return replace(parameter, type=first.type, optional=optional, is_tuple=first.is_tuple)
    if any((other.default, other.required) != (first.default, first.required) for other in reached):
        raise ComponentError(f"{where} reaches parameters with several defaults", "one default", "set a default")
    description = parameter.description or first.description
    return replace(first, name=parameter.name, description=description, same_as=None)  # another step has its own


def load(pipeline: str) -> Dag:
    """Trace a pipeline of ``tfopt.pipelines`` by name, or the function of a Python file that has the file's name.

    Raises:
        ComponentError: If there is no such pipeline, file or function.
    """
    if pipeline.endswith(".py"):
        path = Path(pipeline)
        if not path.is_file():
            received = f"{pipeline}: no such file"
            raise ComponentError(received, "a Python file with a pipeline function", "check the path")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.origin  # a .py file always has both
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module  # so that components declared in that file are found by their path
        with _errors_with_line(path, "a Python file that can be imported"):
            # From its source: bytecode of a file of the same second and size may be that before the last change.
            exec(compile(path.read_bytes(), spec.origin, "exec", dont_inherit=True), vars(module))
    elif pipeline in pipelines():
        module = importlib.import_module(f"tfopt.pipelines.{pipeline}")
    else:
        received = f"pipeline {pipeline!r}"
        raise ComponentError(received, "a shipped pipeline or a .py file", nearest(pipeline, pipelines()))
    name = Path(pipeline).stem
    function = getattr(module, name, None)
    if not callable(function) or not inspect.signature(function).parameters:
        expected = "a function with the name of its file, whose first argument records the steps"
        raise ComponentError(f"{pipeline}: no function {name}(steps, …)", expected, f"write def {name}(steps, …)")
    with _errors_with_line(Path(module.__file__ or pipeline), "a pipeline function that adds steps"):
        return trace(function)


@contextlib.contextmanager
def _errors_with_line(path: Path, expected: str) -> Iterator[None]:
    """Convert exceptions of the code of a pipeline file to errors that name the line in the file."""
    try:
        yield
    except (ComponentError, KeyboardInterrupt):
        raise
    except BaseException as error:  # with SystemExit the command would end with success
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename) == path.absolute()]
        line = lines[-1] if lines else getattr(error, "lineno", None)
        received = f"{path}{f', line {line}' if line else ''}: {type(error).__name__}: {first_line(error)}"
        fix = "correct the file; values of parameters, and outputs of steps, are known only when the pipeline runs"
        raise ComponentError(received, expected, fix) from error


def pipelines() -> list[str]:
    """List the names of the pipelines in ``tfopt.pipelines``."""
    return sorted(module.name for module in pkgutil.iter_modules(tfopt.pipelines.__path__))


def _wire(component: Component, port: Port, value: Any) -> Wire | None:
    """Check what an input is wired to, and return it in its final form."""
    if value is None or value == []:
        if port.optional:
            return None
        raise ComponentError(f"{component.name}: no {port.name}", port.type.__name__, f"pass {port.name}=…")
    items = value if isinstance(value, list | tuple) else [value]
    for item in items:
        if not isinstance(item, StepOutput | PipelineInput):
            expected = "an output of a step, or an input of the pipeline"
            raise ComponentError(f"{component.name}: {port.name}={item!r}", expected, 'pass step.outputs["NAME"]')
        if not issubclass(item.type, port.type):
            received = f"{component.name}: {port.name} is a {item.type.__name__}"
            raise ComponentError(received, port.type.__name__, f"wire a {port.type.__name__} there")
    if isinstance(value, list | tuple) != port.many:
        received = f"{component.name}: {port.name} is {'one' if port.many else 'a list'}"
        raise ComponentError(received, "a list" if port.many else "one artifact", "add or drop the brackets")
    return tuple(items) if port.many else items[0]


def _earlier_components(dag: Dag, model: Any) -> list[LineageStep]:
    """Return the steps that a model goes through in this DAG, first to last."""
    if not isinstance(model, StepOutput):
        return []
    step = dag.steps[model.step]
    effect = step.component.effect_with(step.parameters)
    entry = LineageStep(component=step.component.name, parameters=dict(step.parameters), effect=effect)
    return [*_earlier_components(dag, step.inputs.get("model")), entry]


def _sample(component: Component, name: str, wire: Any) -> Any:
    """Return the value to check now: a placeholder's default, or an allowed one if only the run knows the value."""
    if not isinstance(wire, Placeholder):
        return wire
    if wire.parameter.default is not None or wire.parameter.optional:
        return wire.parameter.default
    parameter = component.parameters.get(name)
    if parameter is None:
        return None
    return parameter.sample() if parameter.required or parameter.default is None else parameter.default
