"""DAGs and components compiled to KFP v2 YAML. Compiling imports neither TensorFlow nor TFX."""

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml
from google.protobuf import json_format
from kfp import dsl
from kfp.compiler.pipeline_spec_builder import extract_comments_from_pipeline_spec
from kfp.dsl.structures import ResourceSpec

import tfopt
from tfopt.component import Component
from tfopt.dag.dag import Dag, PipelineInput, Step, StepOutput, Value
from tfopt.dag.policy_checks import check_images
from tfopt.declaration.parameters import Parameter
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.formatting import visible
from tfopt.kfp.container_components import (
    add_task,
    call_in_thread,
    container_component,
    docstring,
    input_artifact,
    kfp_type,
    parameter_arguments,
    set_signature,
)
from tfopt.kfp.images import Images
from tfopt.kfp.placement import declared_values, place_steps
from tfopt.kfp.pod_options import GPU_TYPE, KUBEFLOW, VERTEX, Options, Target, apply
from tfopt.kfp.vertex import check_pipeline

SCHEMES = ("gs://", "s3://", "minio://", "oci://")  # of KFP's importer


def check_address(name: str, value: Any) -> None:
    """Raise ComponentError if the cluster cannot read the address of a source."""
    if not str(value).startswith(SCHEMES):
        received = f"--set {name}={value}"
        fix = "copy it to your object store and pass its address there, or let --stage s3://BUCKET/FOLDER do that"
        raise ComponentError(received, f"an address that the cluster can read: {', '.join(SCHEMES)}", fix)


def compile_component(
    component: Component, file: Path, images: Images | None = None, counts: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Write ``component.yaml``.

    The length of a list input is 1 unless it is in `counts`. The images are the project's own if None.

    Raises:
        ComponentError: If a count is for no list input, or less than 1.
    """
    lengths = {port.name: 1 for port in component.inputs.values() if port.many}
    for name, count in counts.items():
        if name not in lengths or count < 1:
            expected = f"a list input ({', '.join(lengths) or 'there is none'}) and a number from 1"
            raise ComponentError(f"{component.name}: --count {name}={count}", expected, nearest(name, lengths))
    lengths |= counts
    images = images or Images()
    described = container_component(component, lengths, images)
    pod = declared_values(component, images)
    described.component_spec.implementation.container.resources = ResourceSpec(  # type: ignore[attr-defined]
        *(pod["cpu"], pod["cpu"], pod["memory"], pod["memory"]),
        **({"accelerator_type": GPU_TYPE, "accelerator_count": pod["gpu"]} if pod["gpu"] != "0" else {}),
    )
    _write_yaml(described, file, {images.of(component.image)})


def compile_pipeline(
    dag: Dag,
    file: Path,
    images: Images | None = None,
    options: Options | None = None,
    sources: Collection[str] = (),
    *,
    as_component: bool = False,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    target: Target = KUBEFLOW,
) -> dict[str, str]:
    """Write a DAG as native KFP v2 YAML, and return KFP's names of the tasks by the ids of the steps.

    Sources become parameters ``NAME_uri``, imported when the run starts.

    Optional sources that are neither in `sources` nor in `defaults` are left out, because KFP imports every source, and
    so are the steps that require them. A run has the defaults, addresses and checked values, unless it sets others. A
    component for another pipeline (`as_component`) has artifacts as sources and outputs. For Vertex AI the file has no
    Kubernetes settings.

    Raises:
        ComponentError: If an option does not fit the DAG or the image of a step, or KFP's compiler or Vertex AI
            refuses the DAG.
    """
    images, options = images or Images(), options or Options()
    options.check(dag)
    if as_component:
        _refuse_settings_of_runs(dag, options, defaults)
    dag = dag.with_sources(dict.fromkeys(sources, "") | dict(defaults))
    placed = place_steps(dag, images, options)
    values = {name: parameter.default for name, parameter in dag.parameters.items()} | dict(defaults)
    check_images(dag, values, [step["image"] for step in placed.values()])
    used = [source for source in dag.sources.values() if not source.optional or source.name in {*sources, *defaults}]
    if target == VERTEX:
        addresses = {name: defaults[name] for name in dag.sources if name in defaults}
        check_pipeline(pipeline_name(dag), placed, options, addresses)
    signature = _signature(dag, used, as_component, defaults)
    importers, names = dict[str, str](), dict[str, str]()

    def build(*values: Any) -> Any:  # KFP passes the values in the order of the signature
        arguments = dict(zip(signature.parameters, values, strict=True))
        if not as_component:
            arguments |= {source.name: _import_source(source, arguments[_uri(source)], options) for source in used}
            importers.update({arguments[source.name].task_name: source.name for source in used})
        artifacts = {source.name: arguments[source.name] for source in used}
        tasks: dict[str, dsl.PipelineTask] = {}
        for step in dag.steps.values():
            tasks[step.id] = task = _add_step(step, arguments, artifacts, tasks)
            names[step.id] = task.name
            apply(placed[step.id], task, target)
        outputs = {name: tasks[output.step].outputs[output.output] for name, output in dag.outputs.items()}
        return signature.return_annotation(**outputs) if as_component and outputs else None

    set_signature(build, dag.name, _document(dag, used), signature)
    description = " ".join([dag.description, *(f"{p.name}: {p.description}" for p in dag.parameters.values())])
    decorate = dsl.pipeline(name=pipeline_name(dag), description=description, pipeline_root=options.root)
    try:
        compiled = call_in_thread(decorate, build)
        _name_importers(compiled.pipeline_spec, importers)
        _write_yaml(compiled, file, {values["image"] for values in placed.values()})
    except (TypeError, ValueError, RuntimeError) as error:
        fix = "change the DAG as that line says"
        raise ComponentError(f"{dag.name}: {first_line(error)}", "a DAG that KFP's compiler accepts", fix) from error
    return names


def _add_step(step: Step, arguments: Mapping[str, Any], artifacts: Mapping[str, Any], tasks: Mapping[str, Any]) -> Any:
    """Add the task of a step, which gets values of the pipeline, and artifacts of sources and of earlier tasks."""
    passed = {name: value for name, value in step.resolve(arguments).items() if value is not None}
    lengths = {name: len(wire) for name, wire in step.inputs.items() if isinstance(wire, tuple)}
    return add_task(step.component, lengths, _wires(step, artifacts, tasks), passed).set_display_name(step.id)


def _refuse_settings_of_runs(dag: Dag, options: Options, defaults: Mapping[str, Any]) -> None:
    """Raise ComponentError for the root or a source, which the pipeline around a component has."""
    reused = [f"{name}:reuse" for name in dag.sources if "reuse" in options.of(name)]
    for option in [*(["root"] if options.root else []), *reused]:
        fix = "leave it out: the pipeline that uses the component has the root, and its steps make the artifacts"
        raise ComponentError(f"--kfp-option {option} with --as-component", "options of steps", fix)
    for name in dag.sources:
        if name in defaults:
            fix = "leave it out: the sources of a component are artifacts of the pipeline around it"
            raise ComponentError(f"--set {name}={defaults[name]} with --as-component", "values of parameters", fix)


def _signature(
    dag: Dag, sources: Sequence[PipelineInput], as_component: bool, defaults: Mapping[str, Any]
) -> inspect.Signature:
    """Return the signature of the function that KFP compiles: sources and outputs are artifacts of a component."""
    declared = [
        replace(parameter, default=defaults[name], required=False) if name in defaults else parameter
        for name, parameter in dag.parameters.items()
    ]
    if not as_component:
        for source in sources:
            if source.name in defaults:
                check_address(source.name, defaults[source.name])
        uris = [
            Parameter(_uri(s), str, defaults.get(s.name), s.name not in defaults, description=s.description)
            for s in sources
        ]
        return inspect.Signature(list(parameter_arguments([*uris, *declared])))
    inputs = [input_artifact(source.name, source.type) for source in sources]
    parameters = parameter_arguments(declared)
    fields = [(name, kfp_type(output.type)) for name, output in dag.outputs.items()]
    outputs = NamedTuple("Outputs", fields) if fields else inspect.Signature.empty
    return inspect.Signature([*inputs, *parameters], return_annotation=outputs)


def _document(dag: Dag, sources: Sequence[PipelineInput]) -> str:
    inputs = [(name, source.description) for source in sources for name in (source.name, _uri(source))]
    inputs += [(name, parameter.description) for name, parameter in dag.parameters.items()]
    ports = {name: dag.steps[output.step].component.outputs[output.output] for name, output in dag.outputs.items()}
    return docstring(dag.description, inputs, [(name, port.description) for name, port in ports.items()])


def _uri(source: PipelineInput) -> str:
    return f"{source.name}_uri"


def pipeline_name(dag: Dag) -> str:
    """Return the name of the pipeline on the server; raise ComponentError for one that Kubernetes would refuse."""
    name = dag.name.replace("_", "-")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        expected = "at most 63 small letters, digits and underscores, a letter or digit at both ends"
        raise ComponentError(f"pipeline {dag.name}", expected, "rename the pipeline's function and file")
    return name


def _write_yaml(compiled: Any, file: Path, images: Collection[str]) -> None:
    """Write what KFP has compiled, with comments that cannot be read as YAML.

    KFP's compiler writes default values into its comments as they are, so a line break in one would end the comment.
    Its YAML is the same; written in Python, and not by libyaml, it takes ten times as long.
    """
    specs = [json_format.MessageToDict(spec) for spec in (compiled.pipeline_spec, compiled.platform_spec)]
    comments = extract_comments_from_pipeline_spec(specs[0], compiled.description)
    lines = [line if line.startswith("#") else f"#   {line}" for line in visible(comments).splitlines()]
    body = yaml.dump_all(filter(None, specs), Dumper=yaml.CSafeDumper)
    file.write_text("\n".join([*_image_note(images), *lines, body]), newline="")


def _image_note(references: Collection[str]) -> list[str]:
    """Return a comment for the top of YAML whose images have no registry, because a cluster cannot pull them."""
    local = sorted(reference for reference in references if "/" not in reference)
    if not local:
        return []
    version, targets = tfopt.__version__, " default gpu" if any("-gpu:" in reference for reference in local) else ""
    return [
        f"# Images without a registry: {', '.join(local)}. Build and push them (docs/images.md):",
        f"#   VERSION={version} REGISTRY=registry.example/ docker buildx bake"
        f" --file deploy/images/docker-bake.json --push{targets}",
        f"# and compile this file for them: tfopt compile … --image registry.example/tfopt-{{kind}}:{version}",
    ]


def _import_source(source: PipelineInput, uri: Any, options: Options) -> Any:
    # KFP's cache identifies an imported artifact by its address, even if the content has changed. So it is imported in
    # each run, unless the user states that the content at the address does not change.
    reimport = options.of(source.name).get("reuse") != "yes"
    return dsl.importer(artifact_uri=uri, artifact_class=kfp_type(source.type), reimport=reimport).output


def _name_importers(spec: Any, sources: Mapping[str, str]) -> None:
    """Rename the tasks that import sources, which KFP names ``importer``, ``importer-2`` and so on.

    A display name is not enough: KFP's launcher (2.16, 2.17) records an importer under it, and then KFP's driver, which
    looks for the task's key, does not find the imported artifact.
    """
    tasks = spec.root.dag.tasks
    keys = {key: name.replace("_", "-") for key, name in sources.items() if name.replace("_", "-") not in tasks}
    for task in tasks.values():
        for wire in task.inputs.artifacts.values():
            producer = wire.task_output_artifact.producer_task
            if producer in keys:
                wire.task_output_artifact.producer_task = keys[producer]
        for position, producer in enumerate(task.dependent_tasks):
            task.dependent_tasks[position] = keys.get(producer, producer)
    for key, name in keys.items():
        tasks[name].CopyFrom(tasks[key])
        tasks[name].task_info.name = name
        del tasks[key]


def _wires(step: Step, sources: Mapping[str, Any], tasks: Mapping[str, Any]) -> dict[str, object]:
    """Return the artifacts that a task is called with."""

    def artifact(value: Value) -> Any:
        return tasks[value.step].outputs[value.output] if isinstance(value, StepOutput) else sources[value.name]

    wires: dict[str, object] = {}
    for name, wire in step.inputs.items():
        if isinstance(wire, tuple):
            wires |= {f"{name}_{index}": artifact(value) for index, value in enumerate(wire, 1)}
        else:
            wires[name] = artifact(wire)
    return wires
