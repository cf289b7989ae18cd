"""KFP components of declarations: the signature, docstring and container that KFP compiles.

A step's container runs ``python -P -m tfopt.run NAME --executor-input {{$}}``, see `tfopt.kfp.container_entry`.
"""

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from kfp import dsl
from kfp.dsl import Input as KfpInput
from kfp.dsl import Output as KfpOutput
from kfp.dsl.pipeline_channel import PipelineArtifactChannel

from tfopt import artifacts
from tfopt.component import Component, Port
from tfopt.declaration.parameters import Parameter
from tfopt.kfp.container_entry import classification_outputs, page_output
from tfopt.kfp.images import Images

TYPES: dict[type[artifacts.Artifact], type[dsl.Artifact]] = {
    artifacts.Artifact: dsl.Artifact,
    artifacts.Examples: dsl.Dataset,
    artifacts.Model: dsl.Model,
    artifacts.Evaluation: dsl.Metrics,
    artifacts.Benchmark: dsl.Metrics,
}

LOCAL_IMAGE = "python"  # of components that run without one
LIGHTWEIGHT = Path(__file__).with_name("lightweight.py")


def container_component(
    component: Component,
    lengths: Mapping[str, int],
    images: Images | None = None,
    unset: Collection[str] = (),
    collected: Collection[str] = (),
    same: Mapping[str, str] = MappingProxyType({}),
    local: bool = False,
) -> Callable[..., Any]:
    """Build the KFP component of a declaration: a container or, if it is `local`, a function of the installed package.

    A list input becomes one KFP input per element, ``NAME_1``, ``NAME_2``, …; some of these may be lists of artifacts
    themselves (`collected`), whose lengths are known when the step runs. An optional number or artifact without a value
    is left out (`unset`), because KFP's local engine (2.16) fails on it, and so is an input that is the artifact of
    another one (`same`), because KFP's driver (2.16) refuses a task that gets one artifact twice.
    """
    is_shipped = component.__module__.startswith("tfopt.components.")
    name = component.name if is_shipped else component.path
    if local:  # as KFP's own lightweight components; its runner replaces `python3`, and refuses "python3 -m"
        image, option = LOCAL_IMAGE, "--executor_input"
        module = ["kfp.dsl.executor_main", "--component_module_path", str(LIGHTWEIGHT), "--function_to_execute", name]
        command = ["python3", "-u", "-m", *module]
    else:
        image, option = (images or Images()).of(component.image), "--executor-input"
        # Only components of a user may be modules of the image's working folder.
        command = ["python", *(["-P"] if is_shipped else []), "-m", "tfopt.run", name]
    repeated = [word for name, other in same.items() for word in ("--same-artifact", f"{name}={other}")]

    def build(*_: Any) -> dsl.ContainerSpec:
        message = dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER
        return dsl.ContainerSpec(image=image, command=command, args=[option, message, *repeated])

    inputs = [(name, port) for port in component.inputs.values() for name in _kfp_inputs(port, lengths)]
    outputs = list(_outputs(component, lengths, collected))
    arguments = [
        input_artifact(name, port.type, is_optional=port.optional, is_list=name in collected)
        for name, port in inputs
        if {name, port.name}.isdisjoint({*unset, *same})
    ]
    arguments += [_argument(name, KfpOutput[kind]) for name, kind, _ in outputs]
    arguments += parameter_arguments([p for name, p in component.parameters.items() if name not in unset])
    described = [(name, port.description) for name, port in inputs]
    described += [(name, parameter.description) for name, parameter in component.parameters.items()]
    doc = docstring(component.summary, described, ((name, text) for name, _, text in outputs))
    set_signature(build, component.name, doc, inspect.Signature(arguments))
    return dsl.container_component(build)  # type: ignore[no-any-return]


def add_task(
    component: Component,
    lengths: Mapping[str, int],
    wires: Mapping[str, object],
    values: Mapping[str, object],
    images: Images | None = None,
    local: bool = False,
) -> dsl.PipelineTask:
    """Add a task to the KFP pipeline that is being built.

    Wires are the artifact of each KFP input: of ``NAME``, or of ``NAME_1``, ``NAME_2``, … of a list input.
    """
    optional = {port.name for port in component.inputs.values() if port.optional}
    optional |= {name for name, p in component.parameters.items() if p.optional and p.default is None}
    unset = optional - values.keys() - wires.keys()
    collected = {name for name, wire in wires.items() if getattr(wire, "is_artifact_list", False)}
    same = _same_artifacts(wires)
    own_wires = {name: wire for name, wire in wires.items() if name not in same}
    task = container_component(component, lengths, images, unset, collected, same, local)(**own_wires, **values)
    return task.set_caching_options(component.cache == "always")


def _same_artifacts(wires: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs that get the artifact of an earlier input, by that input; lists of artifacts are left out."""
    first: dict[tuple[str | None, str], str] = {}
    same: dict[str, str] = {}
    for name, wire in wires.items():
        if isinstance(wire, PipelineArtifactChannel) and not wire.is_artifact_list:
            other = first.setdefault((wire.task_name, wire.name), name)
            same |= {name: other} if other != name else {}
    return same


def _outputs(
    component: Component, lengths: Mapping[str, int], collected: Collection[str]
) -> Iterator[tuple[str, type[dsl.Artifact], str]]:
    """Yield name, type and description of each KFP output."""
    for port in component.outputs.values():
        yield port.name, kfp_type(port.type), port.description
        if port.type.page:
            yield page_output(port.name), dsl.HTML, f"The HTML report of {port.name}."
    # without those of collected models, whose number is unknown
    names = {port.name: _kfp_inputs(port, lengths) for port in component.inputs.values()}
    single = {port: [name for name in of_port if name not in collected] for port, of_port in names.items()}
    for name, (output, _) in classification_outputs(component, single).items():
        text = f"Confusion matrix of {name.removeprefix(f'{output}_')}; for two classes also its ROC curve."
        yield name, dsl.ClassificationMetrics, text


def parameter_arguments(parameters: Collection[Parameter]) -> Iterator[inspect.Parameter]:
    """Yield the arguments of a KFP function for parameters, the required ones first."""
    for parameter in sorted(parameters, key=lambda parameter: not parameter.required):
        hint = list if parameter.type == list[str] else parameter.type
        default = inspect.Parameter.empty if parameter.required else parameter.default
        if parameter.optional:
            # Empty text means None: KFP's interface sends it, and its local engine can pass no other value.
            default = default or "" if hint is str else default
            hint = Optional[hint]
        yield _argument(parameter.name, hint, default)


def input_artifact(
    name: str, type: type[artifacts.Artifact], *, is_optional: bool = False, is_list: bool = False
) -> inspect.Parameter:
    """Return the argument of a KFP function for an input artifact."""
    kind = kfp_type(type)
    hint = KfpInput[list[kind]] if is_list else KfpInput[kind]  # type: ignore[valid-type]
    return _argument(name, Optional[hint] if is_optional else hint, None if is_optional else inspect.Parameter.empty)


def _argument(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def kfp_type(type: type[artifacts.Artifact]) -> type[dsl.Artifact]:
    """Return KFP's type of an artifact type."""
    return next(TYPES[base] for base in type.__mro__ if base in TYPES)


def _kfp_inputs(port: Port, lengths: Mapping[str, int]) -> list[str]:
    return [f"{port.name}_{index + 1}" for index in range(lengths.get(port.name, 0))] if port.many else [port.name]


def docstring(summary: str, inputs: Iterable[tuple[str, str]], outputs: Iterable[tuple[str, str]]) -> str:
    """Return a docstring from which KFP reads the descriptions of inputs and outputs."""
    lines = [summary, "", "Args:", *(f"    {name}: {text}" for name, text in inputs)]
    return "\n".join([*lines, "", "Returns:", *(f"    {name}: {text}" for name, text in outputs)])


def call_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function, called in a thread.

    KFP inspects the stack at each option of a step, and looks for the module of each frame among all that are imported:
    seconds under a notebook or a test runner. A new thread has a few frames.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function, *arguments).result()


def set_signature(function: Any, name: str, doc: str, signature: inspect.Signature) -> None:
    """Set what KFP reads from a function that it compiles."""
    function.__name__, function.__doc__, function.__signature__ = name, doc, signature
    function.__annotations__ = {name: argument.annotation for name, argument in signature.parameters.items()}
