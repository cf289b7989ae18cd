"""The KFP face of every component: a native KFP v2 container component, and whole DAGs compiled to YAML.

The step in the container is ``python -m tfopt.run NAME --executor-input {{$}}``, which is `tfopt.kfp.step`. Compiling
imports neither TensorFlow nor TFX.
"""

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Optional

from kfp import compiler, dsl
from kfp.dsl import Input as KfpInput
from kfp.dsl import Output as KfpOutput

from tfopt import artifacts
from tfopt.component import Component, Port
from tfopt.dag.dag import Dag, PipelineInput, Placeholder, Step, StepOutput, Value
from tfopt.declaration.parameters import Parameter, read_parameter
from tfopt.errors import ComponentError, first_line
from tfopt.kfp.images import Images
from tfopt.kfp.pod_options import Options
from tfopt.kfp.step import page_of
from tfopt.kfp.visualizations import drawn_outputs

TYPES: dict[type[artifacts.Artifact], type[dsl.Artifact]] = {
    artifacts.Artifact: dsl.Artifact,
    artifacts.Examples: dsl.Dataset,
    artifacts.Model: dsl.Model,
    artifacts.Evaluation: dsl.Metrics,
    artifacts.Benchmark: dsl.Metrics,
}


def container_component(
    component: Component, lengths: Mapping[str, int], images: Images | None = None, unset: Collection[str] = ()
) -> Callable[..., Any]:
    """Build the KFP component of a declaration.

    Args:
        component: The declaration.
        lengths: How many elements each list input has; it becomes one KFP input per element, ``NAME_1``, ``NAME_2``, …
        images: The project's own when None.
        unset: Parameters and inputs to leave out. Where nobody sets an optional number or artifact, KFP's backend gives
            the step none, but its local engine (2.16) stops; so a compiled DAG does not name them.
    """
    used = (images or Images()).of(component.image)

    def build(*_: Any) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=used,
            command=["python", "-m", "tfopt.run", component.path if _is_foreign(component) else component.name],
            args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
        )

    build.__name__ = component.name
    build.__doc__ = _docstring(component, lengths)
    parameters = {name: found for name, found in component.parameters.items() if name not in unset}
    build.__signature__ = inspect.Signature([*_ports(component, lengths, unset), *_parameters(parameters)])  # type: ignore[attr-defined]
    build.__annotations__ = {name: given.annotation for name, given in build.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return dsl.container_component(build)  # type: ignore[no-any-return]


def compile_component(component: Component, file: Path, images: Images | None = None) -> None:
    """Write ``component.yaml``; list inputs get one element, the least that a pipeline of others can wire."""
    lengths = {port.name: 1 for port in component.inputs.values() if port.many}
    compiler.Compiler().compile(container_component(component, lengths, images), str(file))


def compile_pipeline(
    dag: Dag, file: Path, images: Images | None = None, options: Options | None = None, given: Collection[str] = ()
) -> None:
    """Write a DAG as native KFP v2 YAML. Sources become parameters ``NAME_uri``, imported when the run starts.

    Args:
        dag: What is compiled.
        file: Where to.
        images: The project's own when None.
        options: How steps run.
        given: The optional sources that its runs are given; the others are not in it, since KFP imports what is there.

    Raises:
        ComponentError: When an option does not fit the DAG, or KFP's compiler refuses it.
    """
    images, options = images or Images(), options or Options()
    options.check(dag)
    there = [source for source in dag.sources.values() if not source.optional or source.name in given]

    def build(*values: Any) -> None:  # KFP hands them over in the signature's order
        named = dict(zip(signature.parameters, values, strict=True))
        sources = {source.name: _imported(source, named[f"{source.name}_uri"], options) for source in there}
        tasks: dict[str, Any] = {}
        for step in dag.steps.values():
            tasks[step.id] = task = _task(step, sources, tasks, named, images)
            options.apply(task, step.id, step.component)

    build.__name__ = dag.name
    build.__doc__ = dag.description
    uris = [read_parameter(f"{source.name}_uri", str, None, True, source.description) for source in there]
    signature = inspect.Signature(list(_parameters({p.name: p for p in [*uris, *dag.parameters.values()]})))
    build.__signature__ = signature  # type: ignore[attr-defined]
    build.__annotations__ = {name: given.annotation for name, given in signature.parameters.items()}
    description = " ".join([dag.description, *(f"{p.name}: {p.description}" for p in dag.parameters.values())])
    decorate = dsl.pipeline(name=pipeline_name(dag), description=description, pipeline_root=options.root)
    try:
        compiler.Compiler().compile(decorate(build), str(file))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ComponentError(
            f"{dag.name}: {first_line(error)}", "a DAG that KFP's compiler accepts", "change the DAG as that line says"
        ) from error


def pipeline_name(dag: Dag) -> str:
    """What the pipeline is called on the server.

    Raises:
        ComponentError: When Kubernetes, whose objects get that name, would refuse it.
    """
    name = dag.name.replace("_", "-")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise ComponentError(
            f"pipeline {dag.name}",
            "at most 63 small letters, digits and underscores, a letter or digit at both ends",
            "rename the pipeline's function and file",
        )
    return name


def _imported(source: PipelineInput, uri: Any, options: Options) -> Any:
    # An artifact imported again is the same one to KFP's cache, whatever its content has become since: only the user
    # knows that an address never changes its content.
    again = options.of(source.name).get("reuse") != "yes"
    task = dsl.importer(artifact_uri=uri, artifact_class=_type(source.type), reimport=again)
    return task.set_display_name(source.name).output


def _task(
    step: Step, sources: Mapping[str, Any], tasks: Mapping[str, Any], given: Mapping[str, Any], images: Images
) -> Any:
    def channel(value: Value) -> Any:
        if isinstance(value, StepOutput):
            return tasks[value.step].outputs[value.output]
        return sources.get(value.name)

    wires: dict[str, Any] = {}
    for name, wire in step.inputs.items():
        if isinstance(wire, tuple):
            wires |= {f"{name}_{index}": channel(value) for index, value in enumerate(wire, 1)}
        elif isinstance(wire, PipelineInput) and wire.name not in sources:
            continue
        else:
            wires[name] = channel(wire)
    values = {
        name: given[value.parameter.name] if isinstance(value, Placeholder) else value
        for name, value in step.parameters.items()
        if value is not None
    }
    lengths = {name: len(wire) for name, wire in step.inputs.items() if isinstance(wire, tuple)}
    optional = {port.name for port in step.component.inputs.values() if port.optional}
    optional |= {found.name for found in step.component.parameters.values() if found.optional and found.default is None}
    unset = optional - values.keys() - wires.keys()
    task = container_component(step.component, lengths, images, unset)(**wires, **values)
    task.set_display_name(step.id)
    task.set_caching_options(step.component.cache == "always")
    return task


def _ports(component: Component, lengths: Mapping[str, int], unset: Collection[str]) -> Any:
    for port in component.inputs.values():
        for name in _spread(port, lengths) if port.name not in unset else ():
            hint = KfpInput[_type(port.type)]
            hint = Optional[hint] if port.optional else hint
            default = {"default": None} if port.optional else {}
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, **default)
    for port in component.outputs.values():
        yield inspect.Parameter(port.name, inspect.Parameter.KEYWORD_ONLY, annotation=KfpOutput[_type(port.type)])
        if port.type.page:
            yield inspect.Parameter(page_of(port.name), inspect.Parameter.KEYWORD_ONLY, annotation=KfpOutput[dsl.HTML])
    for name in drawn_outputs(component, _spread_all(component, lengths)):
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=KfpOutput[dsl.ClassificationMetrics])


def _parameters(parameters: Mapping[str, Parameter]) -> Any:
    for parameter in sorted(parameters.values(), key=lambda parameter: not parameter.required):
        hint = list if parameter.type == list[str] else parameter.type
        default = {} if parameter.required else {"default": parameter.default}
        if (
            parameter.optional
        ):  # an empty text is none: what KFP's interface sends, and all its local engine can hand on
            default = {"default": ""} if hint is str else default
            hint = Optional[hint]
        yield inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, **default)


def _type(type: type[artifacts.Artifact]) -> type[dsl.Artifact]:
    return next(TYPES[base] for base in type.__mro__ if base in TYPES)


def _spread_all(component: Component, lengths: Mapping[str, int]) -> dict[str, list[str]]:
    return {port.name: _spread(port, lengths) for port in component.inputs.values()}


def _spread(port: Port, lengths: Mapping[str, int]) -> list[str]:
    return [f"{port.name}_{index + 1}" for index in range(lengths.get(port.name, 0))] if port.many else [port.name]


def _docstring(component: Component, lengths: Mapping[str, int]) -> str:
    """KFP reads inputs from ``Args:`` and outputs from ``Returns:`` only; authors write all under ``Args:``."""
    taken = [(name, port.description) for port in component.inputs.values() for name in _spread(port, lengths)]
    taken += [(name, parameter.description) for name, parameter in component.parameters.items()]
    given = [(name, port.description) for name, port in component.outputs.items()]
    given += [(page_of(name), f"The page of {name}.") for name, port in component.outputs.items() if port.type.page]
    given += [
        (
            name,
            f"What is drawn of {name.removeprefix(f'{output}_')}: its confusion matrix; for two classes its ROC curve.",
        )
        for name, (output, _) in drawn_outputs(component, _spread_all(component, lengths)).items()
    ]
    lines = [component.summary, "", "Args:", *(f"    {name}: {text}" for name, text in taken)]
    return "\n".join([*lines, "", "Returns:", *(f"    {name}: {text}" for name, text in given)])


def _is_foreign(component: Component) -> bool:
    return not component.__module__.startswith("tfopt.components.")
