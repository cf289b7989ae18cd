"""DAGs and components compiled to KFP v2 YAML. Compiling imports neither TensorFlow nor TFX."""

import inspect
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kfp import compiler, dsl

from tfopt.component import Component
from tfopt.dag.dag import Dag, PipelineInput, Placeholder, Step, StepOutput, Value
from tfopt.declaration.parameters import read_parameter
from tfopt.errors import ComponentError, first_line, nearest
from tfopt.kfp.container_components import container_component, kfp_type, parameter_arguments, set_signature
from tfopt.kfp.images import Images
from tfopt.kfp.placement import place_steps
from tfopt.kfp.pod_options import Options, apply


def compile_component(
    component: Component, file: Path, images: Images | None = None, counts: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Write ``component.yaml``.

    Args:
        component: The declaration.
        file: The file to write.
        images: The container images; the project's own if None.
        counts: The length of list inputs; 1 for those that are not in it.

    Raises:
        ComponentError: If a count is for no list input, or less than 1.
    """
    lengths = {port.name: 1 for port in component.inputs.values() if port.many}
    for name, count in counts.items():
        if name not in lengths or count < 1:
            expected = f"a list input ({', '.join(lengths) or 'there is none'}) and a number from 1"
            raise ComponentError(f"{component.name}: --count {name}={count}", expected, nearest(name, lengths))
    lengths |= counts
    compiler.Compiler().compile(container_component(component, lengths, images), str(file))


def compile_pipeline(
    dag: Dag, file: Path, images: Images | None = None, options: Options | None = None, sources: Collection[str] = ()
) -> None:
    """Write a DAG as native KFP v2 YAML. Sources become parameters ``NAME_uri``, imported when the run starts.

    Args:
        dag: The DAG.
        file: The file to write.
        images: The container images; the project's own if None.
        options: The options of the steps and the run.
        sources: The optional sources that the runs get. The others are left out, because KFP imports every source.

    Raises:
        ComponentError: If an option does not fit the DAG or the image of a step, or KFP's compiler refuses the DAG.
    """
    images, options = images or Images(), options or Options()
    options.check(dag)
    placed = place_steps(dag, images, options)
    used = [source for source in dag.sources.values() if not source.optional or source.name in sources]
    uris = [read_parameter(f"{source.name}_uri", str, None, True, source.description) for source in used]
    signature = inspect.Signature(list(parameter_arguments([*uris, *dag.parameters.values()])))

    def build(*values: Any) -> None:  # KFP passes the values in the order of the signature
        arguments = dict(zip(signature.parameters, values, strict=True))
        imported = {source.name: _import_source(source, arguments[f"{source.name}_uri"], options) for source in used}
        tasks: dict[str, Any] = {}
        for step in dag.steps.values():
            tasks[step.id] = _task(step, imported, tasks, arguments)
            apply(placed[step.id], tasks[step.id])

    inputs = "\n".join(f"    {p.name}: {p.description}" for p in [*uris, *dag.parameters.values()])
    set_signature(build, dag.name, f"{dag.description}\n\nArgs:\n{inputs}", signature)
    description = " ".join([dag.description, *(f"{p.name}: {p.description}" for p in dag.parameters.values())])
    decorate = dsl.pipeline(name=pipeline_name(dag), description=description, pipeline_root=options.root)
    try:
        compiler.Compiler().compile(decorate(build), str(file))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ComponentError(
            f"{dag.name}: {first_line(error)}", "a DAG that KFP's compiler accepts", "change the DAG as that line says"
        ) from error


def pipeline_name(dag: Dag) -> str:
    """Return the name of the pipeline on the server.

    Raises:
        ComponentError: If Kubernetes, whose objects have that name, would refuse it.
    """
    name = dag.name.replace("_", "-")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise ComponentError(
            f"pipeline {dag.name}",
            "at most 63 small letters, digits and underscores, a letter or digit at both ends",
            "rename the pipeline's function and file",
        )
    return name


def _import_source(source: PipelineInput, uri: Any, options: Options) -> Any:
    # KFP's cache identifies an imported artifact by its address, even if the content has changed. So it is imported in
    # each run, unless the user states that the content at the address does not change.
    reimport = options.of(source.name).get("reuse") != "yes"
    task = dsl.importer(artifact_uri=uri, artifact_class=kfp_type(source.type), reimport=reimport)
    return task.set_display_name(source.name).output


def _task(step: Step, sources: Mapping[str, Any], tasks: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    wires = _wires(step, sources, tasks)
    values = {
        name: arguments[value.parameter.name] if isinstance(value, Placeholder) else value
        for name, value in step.parameters.items()
        if value is not None
    }
    lengths = {name: len(wire) for name, wire in step.inputs.items() if isinstance(wire, tuple)}
    optional = {port.name for port in step.component.inputs.values() if port.optional}
    optional |= {name for name, p in step.component.parameters.items() if p.optional and p.default is None}
    unset = optional - values.keys() - wires.keys()
    task = container_component(step.component, lengths, unset=unset)(**wires, **values)
    task.set_display_name(step.id)
    task.set_caching_options(step.component.cache == "always")
    return task


def _wires(step: Step, sources: Mapping[str, Any], tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the artifacts that a task is called with, without optional sources that the pipeline leaves out."""

    def artifact(value: Value) -> Any:
        return tasks[value.step].outputs[value.output] if isinstance(value, StepOutput) else sources.get(value.name)

    wires: dict[str, Any] = {}
    for name, wire in step.inputs.items():
        if isinstance(wire, tuple):
            wires |= {f"{name}_{index}": artifact(value) for index, value in enumerate(wire, 1)}
        elif not isinstance(wire, PipelineInput) or wire.name in sources:
            wires[name] = artifact(wire)
    return wires
