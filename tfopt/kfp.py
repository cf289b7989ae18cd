"""The KFP face of every component: a native KFP v2 container component, and whole DAGs compiled to YAML.

The step in the container is ``python -m tfopt.run NAME --executor-input {{$}}``, which is `tfopt.kfp_step`. Compiling
imports neither TensorFlow nor TFX.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Optional

from kfp import compiler, dsl
from kfp.dsl import Input as KfpInput
from kfp.dsl import Output as KfpOutput

import tfopt
from tfopt import artifacts
from tfopt.component import Component, Port
from tfopt.dag import Dag, Placeholder, Reference, Source, Step, Value
from tfopt.parameters import Parameter, read_parameter

TYPES: dict[type[artifacts.Artifact], type[dsl.Artifact]] = {
    artifacts.Files: dsl.Artifact,
    artifacts.PythonModule: dsl.Artifact,
    artifacts.Examples: dsl.Dataset,
    artifacts.Model: dsl.Model,
    artifacts.SavedModel: dsl.Model,
    artifacts.KerasModel: dsl.Model,
    artifacts.TFLiteModel: dsl.Model,
    artifacts.Report: dsl.Artifact,
    artifacts.Evaluation: dsl.Metrics,
    artifacts.Benchmark: dsl.Metrics,
    artifacts.Decision: dsl.HTML,
    artifacts.Blessing: dsl.Artifact,
    artifacts.Pushed: dsl.Artifact,
}


def image_for(component: Component, image: str | None = None) -> str:
    """The image a step runs in: the given reference, where ``{kind}`` stands for the component's kind.

    Args:
        component: Declares its kind (a folder of ``deploy/images``).
        image: A reference such as ``ghcr.io/me/tfopt-{kind}:1.2``; the project's own name and version when None.
    """
    return (image or f"tfopt-{{kind}}:{tfopt.__version__}").replace("{kind}", component.image)


def container_component(
    component: Component, lengths: Mapping[str, int], image: str | None = None
) -> Callable[..., Any]:
    """Build the KFP component of a declaration.

    Args:
        component: The declaration.
        lengths: How many elements each list input has; it becomes one KFP input per element, ``NAME_1``, ``NAME_2``, …
        image: See `image_for`.
    """
    used = image_for(component, image)

    def build(*_: Any) -> dsl.ContainerSpec:
        return dsl.ContainerSpec(
            image=used,
            command=["python", "-m", "tfopt.run", component.path if _is_foreign(component) else component.name],
            args=["--executor-input", dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
        )

    build.__name__ = component.name
    build.__doc__ = _docstring(component, lengths)
    build.__signature__ = inspect.Signature(list(_ports(component, lengths)) + list(_parameters(component.parameters)))  # type: ignore[attr-defined]
    build.__annotations__ = {name: given.annotation for name, given in build.__signature__.parameters.items()}  # type: ignore[attr-defined]
    return dsl.container_component(build)  # type: ignore[no-any-return]


def compile_component(component: Component, file: Path, image: str | None = None) -> None:
    """Write ``component.yaml``; list inputs get one element, the least that a pipeline of others can wire."""
    lengths = {port.name: 1 for port in component.inputs.values() if port.many}
    compiler.Compiler().compile(container_component(component, lengths, image), str(file))


def compile_pipeline(dag: Dag, file: Path, image: str | None = None) -> None:
    """Write a DAG as native KFP v2 YAML. Sources become parameters ``NAME_uri``, imported when the run starts."""

    def build(*values: Any) -> None:  # KFP hands them over in the signature's order
        given = dict(zip(signature.parameters, values, strict=True))
        sources = {
            source.name: _imported(source, given[uri])
            for source in dag.sources.values()
            if (uri := f"{source.name}_uri") in given
        }
        tasks: dict[str, Any] = {}
        for step in dag.steps.values():
            tasks[step.id] = _task(step, sources, tasks, given, image)

    build.__name__ = dag.name
    build.__doc__ = dag.description
    uris = [
        read_parameter(f"{s.name}_uri", str, None, True, s.description)
        for s in dag.sources.values()
        if not s.optional
    ]
    signature = inspect.Signature(list(_parameters({p.name: p for p in [*uris, *dag.parameters.values()]})))
    build.__signature__ = signature  # type: ignore[attr-defined]
    build.__annotations__ = {name: given.annotation for name, given in signature.parameters.items()}
    description = " ".join([dag.description, *(f"{p.name}: {p.description}" for p in dag.parameters.values())])
    compiler.Compiler().compile(
        dsl.pipeline(name=dag.name.replace("_", "-"), description=description)(build), str(file)
    )


def _imported(source: Source, uri: Any) -> Any:
    task = dsl.importer(artifact_uri=uri, artifact_class=TYPES[source.type], reimport=False)
    return task.set_display_name(source.name).output


def _task(
    step: Step, sources: Mapping[str, Any], tasks: Mapping[str, Any], given: Mapping[str, Any], image: str | None
) -> Any:
    def channel(value: Value) -> Any:
        if isinstance(value, Reference):
            return tasks[value.step].outputs[value.output]
        return sources.get(value.name)

    wires: dict[str, Any] = {}
    for name, wire in step.inputs.items():
        if isinstance(wire, tuple):
            wires |= {f"{name}_{index}": channel(value) for index, value in enumerate(wire, 1)}
        elif isinstance(wire, Source) and wire.name not in sources:
            continue
        else:
            wires[name] = channel(wire)
    values = {
        name: given[value.parameter.name] if isinstance(value, Placeholder) else value
        for name, value in step.parameters.items()
        if value is not None
    }
    lengths = {name: len(wire) for name, wire in step.inputs.items() if isinstance(wire, tuple)}
    task = container_component(step.component, lengths, image)(**wires, **values)
    task.set_display_name(step.id)
    task.set_caching_options(step.component.cached)
    return task


def _ports(component: Component, lengths: Mapping[str, int]) -> Any:
    for port in component.inputs.values():
        for name in _spread(port, lengths):
            hint = KfpInput[TYPES[port.type]]
            hint = Optional[hint] if port.optional else hint
            default = {"default": None} if port.optional else {}
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, **default)
    for port in component.outputs.values():
        yield inspect.Parameter(port.name, inspect.Parameter.KEYWORD_ONLY, annotation=KfpOutput[TYPES[port.type]])


def _parameters(parameters: Mapping[str, Parameter]) -> Any:
    for parameter in sorted(parameters.values(), key=lambda parameter: not parameter.required):
        hint = list if parameter.type == list[str] else parameter.type
        default = {} if parameter.required else {"default": parameter.default}
        hint = Optional[hint] if parameter.optional else hint
        yield inspect.Parameter(parameter.name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, **default)


def _spread(port: Port, lengths: Mapping[str, int]) -> list[str]:
    return [f"{port.name}_{index + 1}" for index in range(lengths.get(port.name, 0))] if port.many else [port.name]


def _docstring(component: Component, lengths: Mapping[str, int]) -> str:
    """KFP reads inputs from ``Args:`` and outputs from ``Returns:`` only; authors write all under ``Args:``."""
    taken = [(name, port.description) for port in component.inputs.values() for name in _spread(port, lengths)]
    taken += [(name, parameter.description) for name, parameter in component.parameters.items()]
    given = [(name, port.description) for name, port in component.outputs.items()]
    lines = [component.summary, "", "Args:", *(f"    {name}: {text}" for name, text in taken)]
    return "\n".join([*lines, "", "Returns:", *(f"    {name}: {text}" for name, text in given)])


def _is_foreign(component: Component) -> bool:
    return not component.__module__.startswith("tfopt.components.")
