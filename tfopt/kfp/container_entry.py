"""A Kubeflow step inside its container: read KFP's ExecutorInput, run the component, write KFP's ExecutorOutput.

Needs no kfp.
"""

import json
import logging
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tfopt.artifacts import Artifact, Evaluation, Model
from tfopt.component import Component, Port
from tfopt.dag.run_events import run_reported
from tfopt.error_messages import first_line
from tfopt.errors import ComponentError
from tfopt.processes.isolation import written_after_step
from tfopt.reports.evaluation_report import EvaluationReport
from tfopt.storage.remote_files import is_remote
from tfopt.telemetry.delivery import exported

log = logging.getLogger(__name__)


def run_step(
    component: Component, executor_input: str, same: Mapping[str, str] = MappingProxyType({})
) -> dict[str, dict[str, object]]:
    """Run a component with the inputs and outputs of KFP's ExecutorInput, and write its ExecutorOutput.

    Returned is the metadata of each output. Inputs in `same` are not in the message, because they are the artifact of
    another input, by that input.

    Raises:
        ComponentError: If the component raises it or ends the process, the message is not an ExecutorInput, or an input
            does not exist at its address. Then no output file is written, and the step fails.
    """
    message = parse_message(executor_input, component)
    targets = message.targets
    sources = message.sources | {name: message.sources[key] for name, key in same.items() if key in message.sources}
    keys = {port.name: port.keys(sources) for port in component.inputs.values()}
    arguments: dict[str, object] = {}
    for port in component.inputs.values():
        paths = [_existing_path(port, uri) for key in keys[port.name] for uri in sources[key]]
        arguments[port.name] = paths if port.many else next(iter(paths), None)
    # only the declared outputs: a server may add outputs of its own, for its logs
    arguments |= {name: _local_path(targets[name]["uri"]) for name in component.outputs}
    arguments |= _parameter_values(component, message.parameters)
    log.info("the same on the command line: %s", _command_line(component, arguments))
    with exported(), written_after_step(message.output_file, *(_local_path(one["uri"]) for one in targets.values())):
        outputs = run_reported(component, arguments, _addresses(message))
    written = _write_outputs(outputs, targets)
    # one key for each model: a collected input has several
    models = {name: [key for key in names for _ in sources[key]] for name, names in keys.items()}
    for name, (source, index) in classification_outputs(component, models).items():
        if name in targets:
            metrics = _classification_metrics(Evaluation(outputs[source].uri).load(), index)
            _target_file(targets[name]).write_text(json.dumps(metrics))
            written[name] = metrics
    entries = {name: {"artifacts": [{**targets[name], "metadata": facts}]} for name, facts in written.items()}
    message.output_file.write_text(json.dumps({"artifacts": entries}))
    return written


@dataclass(frozen=True)
class Message:
    """KFP's ExecutorInput."""

    parameters: Mapping[str, Any]
    sources: dict[str, list[str]]  # addresses of each input: one, or those that KFP collected from a loop
    targets: Mapping[str, Mapping[str, Any]]  # the artifact of each output
    output_file: Path


def parse_message(executor_input: str, component: Component) -> Message:
    """Parse KFP's ExecutorInput; raise ComponentError for another text, or if it lacks an output of the component."""
    try:
        message = _mapping(json.loads(executor_input))
        inputs, outputs = _mapping(message.get("inputs")), _mapping(message.get("outputs"))
        artifacts = {
            name: _mapping(entry).get("artifacts") for name, entry in _mapping(inputs.get("artifacts")).items()
        }
        targets = {name: _mapping(entry["artifacts"][0]) for name, entry in _mapping(outputs.get("artifacts")).items()}
        missing = [name for name in component.outputs if not _path(targets[name]["uri"])]
        sources = {name: [_path(_mapping(item)["uri"]) for item in entry] for name, entry in artifacts.items() if entry}
        parsed = Message(_mapping(inputs.get("parameterValues")), sources, targets, Path(_path(outputs["outputFile"])))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        missing = [f"{type(error).__name__}: {first_line(error)}"]
    if missing:
        received = f"--executor-input {executor_input[:80]!r}: {', '.join(missing)}"
        fix = "run the step from its compiled pipeline or component.yaml, of this version"
        raise ComponentError(received, f"KFP's ExecutorInput, with an address for {', '.join(component.outputs)}", fix)
    return parsed


def _addresses(message: Message) -> dict[str, str]:
    """Return the address of each mounted artifact, whose path exists in this pod only."""
    uris = [uri for listed in message.sources.values() for uri in listed]
    uris += [target["uri"] for target in message.targets.values()]
    return {_local_path(uri): uri for uri in uris}


def _mapping(value: Any) -> dict[str, Any]:
    """Return an object of JSON; null is an empty one, as in all JSON of protocol buffers."""
    if not isinstance(value, dict | None):
        raise TypeError(f"{type(value).__name__} instead of an object")
    return value or {}


def _path(text: str) -> str:
    if b"\0" in os.fsencode(text):
        raise ValueError("a NUL character in a path")
    return text


def page_output(output: str) -> str:
    """Return the KFP output with the HTML report of an output: the interface renders artifacts that are one file."""
    return f"{output}_page"


def classification_outputs(component: Component, inputs: Mapping[str, list[str]]) -> dict[str, tuple[str, int]]:
    """Return the additional outputs, each with the output it is computed from and the model's index in its JSON.

    KFP's interface draws one confusion matrix from an artifact's metadata, so each evaluated model gets an output:
    ``evaluation_baseline``, ``evaluation_candidates_1``, … A declared input has several KFP inputs if it is a list, and
    none if it is optional and not set.
    """
    ports = [port for port in component.inputs.values() if issubclass(port.type, Model)]
    models = [name for port in ports for name in inputs.get(port.name, [])]
    evaluations = [port.name for port in component.outputs.values() if issubclass(port.type, Evaluation)]
    return {f"{name}_{model}": (name, index) for name in evaluations for index, model in enumerate(models)}


def _classification_metrics(evaluation: EvaluationReport, index: int) -> dict[str, object]:
    """Return the metadata of a ``system.ClassificationMetrics``, as kfp's ``dsl.ClassificationMetrics`` builds it."""
    model = evaluation.models[index]
    metadata: dict[str, object] = {"model": model.name}
    if model.confusion:
        metadata["confusionMatrix"] = {
            "annotationSpecs": [{"displayName": name} for name in evaluation.classes],
            "rows": [{"row": row} for row in model.confusion],
        }
    if model.roc:
        keys = ("confidenceThreshold", "recall", "falsePositiveRate")
        points = [(point.threshold, point.true_positive_rate, point.false_positive_rate) for point in model.roc]
        metadata["confidenceMetrics"] = [dict(zip(keys, point, strict=True)) for point in points]
    return metadata


def read_parameter_value(component: Component, name: str, value: Any) -> Any:
    """Convert a value of KFP: all its numbers are doubles, and an optional text that is not set is empty."""
    parameter = component.parameters.get(name)
    if parameter and parameter.optional and value == "":
        return None
    if parameter and parameter.type is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _parameter_values(component: Component, message_values: Mapping[str, Any]) -> dict[str, object]:
    # with set_container_image(PARAMETER), KFP sends the image as base_image and pipelinechannel--PARAMETER
    own = {name: value for name, value in message_values.items() if name != "base_image" and "--" not in name}
    values = {name: read_parameter_value(component, name, value) for name, value in own.items()}
    return {name: value for name, value in values.items() if value is not None}


def _existing_path(port: Port, uri: str) -> str:
    path = _local_path(uri)
    if not is_remote(path) and not Path(path).exists():
        received = f"{port.name}: nothing at {uri} (looked at {path})"
        fix = "check the address; if it is the output of another step, check why that step wrote none"
        raise ComponentError(received, f"{port.type.__name__}: {port.type.contents}", fix)
    return path


def _local_path(uri: str) -> str:
    """Return the path at which KFP's launcher mounts or downloads an artifact."""
    for scheme in ("gs", "s3", "minio"):
        if uri.startswith(f"{scheme}://"):
            return f"/{'gcs' if scheme == 'gs' else scheme}/{uri.removeprefix(f'{scheme}://')}"
    return uri.removeprefix("file://")


def _write_outputs(outputs: Mapping[str, Artifact], targets: Mapping[str, Any]) -> dict[str, dict[str, object]]:
    """Copy the HTML reports to their own outputs; return the metadata of each output that was written."""
    written: dict[str, dict[str, object]] = {}
    for name, output in outputs.items():
        facts = {key: value for key, value in output.metadata.items() if value is not None}
        written[name] = {
            key: value if isinstance(value, str | int | float | bool) else json.dumps(value)
            for key, value in facts.items()
        }
        page = page_output(name)
        if output.page and page in targets:
            shutil.copyfile(output.path / output.page, _target_file(targets[page]))
            written[page] = targets[page].get("metadata", {})
    return written


def _target_file(target: Mapping[str, Any]) -> Path:
    file = Path(_local_path(target["uri"]))
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _command_line(component: Component, arguments: Mapping[str, Any]) -> str:
    words = ["tfopt", component.name]
    for name, value in arguments.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return shlex.join(words)
