"""The inside of a Kubeflow step: KFP's ExecutorInput in, the component run, KFP's ExecutorOutput out. Needs no kfp."""

import json
import logging
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import Evaluation
from tfopt.artifacts.storage import is_remote
from tfopt.component import Component, Port
from tfopt.errors import ComponentError, first_line
from tfopt.kfp.visualizations import drawn, drawn_outputs

log = logging.getLogger("tfopt")


def run_step(component: Component, executor_input: str) -> None:
    """Be the container: run the component as KFP's ExecutorInput says, and write its ExecutorOutput.

    Raises:
        ComponentError: The component's own; or the message is no ExecutorInput, an input is not where it says, or the
            component ended the process. No output file is written then, and the step fails.
    """
    given, wanted = _message(executor_input, component)
    placed = {
        name: found["artifacts"][0] for name, found in given.get("artifacts", {}).items() if found.get("artifacts")
    }
    keys = {port.name: _keys(port, placed) for port in component.inputs.values()}
    inputs = {port.name: _given(port, keys[port.name], placed) for port in component.inputs.values()}
    values = {
        name: typed
        for name, value in given.get("parameterValues", {}).items()
        if (typed := _typed(component, name, value)) is not None
    }
    targets = {name: found["artifacts"][0] for name, found in wanted["artifacts"].items()}
    asked = {name: _local(targets[name]["uri"]) for name in component.outputs}  # a server may add its own, for its logs
    arguments = {**inputs, **asked, **values}
    log.info("the same by hand: %s", _command_line(component, arguments))
    outputs = component(**arguments)
    listed = {}
    for name, output in outputs.items():
        listed[name] = {"artifacts": [{**targets[name], "metadata": _plain(output.metadata)}]}
        if output.page and page_of(name) in targets:
            shutil.copyfile(output.path / output.page, _place(targets[page_of(name)]))
            listed[page_of(name)] = {"artifacts": [targets[page_of(name)]]}
    for name, (source, place) in drawn_outputs(component, keys).items():
        if name in targets:
            shown = drawn(Evaluation(outputs[source].uri).read(), place)
            _place(targets[name]).write_text(json.dumps(shown))
            listed[name] = {"artifacts": [{**targets[name], "metadata": shown}]}
    file = Path(wanted["outputFile"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"artifacts": listed}))


def page_of(output: str) -> str:
    """The KFP output that holds an output's page: its interface renders an artifact that is one file."""
    return f"{output}_page"


def _message(executor_input: str, component: Component) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        message = json.loads(executor_input)
        given, wanted = message.get("inputs", {}), message["outputs"]
        Path(wanted["outputFile"])
        missing = [name for name in component.outputs if not wanted["artifacts"][name]["artifacts"][0]["uri"]]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        missing = [f"{type(error).__name__}: {first_line(error)}"]
    if missing:
        raise ComponentError(
            f"--executor-input {executor_input[:80]!r}: {', '.join(missing)}",
            f"KFP's ExecutorInput, with a place for {', '.join(component.outputs)}",
            "run the step from its compiled pipeline or component.yaml, of this version",
        )
    return given, wanted


def _keys(port: Port, placed: Mapping[str, Any]) -> list[str]:
    """KFP's inputs that stand for an input, in order."""
    if not port.many:
        return [port.name] if port.name in placed else []
    keys = [key for key in placed if key.startswith(f"{port.name}_") and key.removeprefix(f"{port.name}_").isdigit()]
    return sorted(keys, key=lambda key: int(key.rpartition("_")[2]))


def _given(port: Port, keys: list[str], placed: Mapping[str, Any]) -> Any:
    found = [_there(port, placed[key]["uri"]) for key in keys]
    return found if port.many else next(iter(found), None)


def _there(port: Port, uri: str) -> str:
    path = _local(uri)
    if not is_remote(path) and not Path(path).exists():
        raise ComponentError(
            f"{port.name}: nothing at {uri} (looked at {path})",
            f"{port.type.__name__}: {port.type.contents}",
            "check the address; or, when it is another step's output, why that step left none",
        )
    return path


def _place(target: Mapping[str, Any]) -> Path:
    file = Path(_local(target["uri"]))
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _local(uri: str) -> str:
    """Where KFP's launcher mounts or downloads an artifact."""
    for scheme in ("gs", "s3", "minio"):
        if uri.startswith(f"{scheme}://"):
            return f"/{'gcs' if scheme == 'gs' else scheme}/{uri.removeprefix(f'{scheme}://')}"
    return uri.removeprefix("file://")


def _typed(component: Component, name: str, value: Any) -> Any:
    """KFP hands every number over as a double, and has an empty text where an optional one is not given."""
    parameter = component.parameters.get(name)
    if parameter and parameter.optional and value == "":
        return None
    if parameter and parameter.type is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, str | int | float | bool) else json.dumps(value)
        for key, value in metadata.items()
    }


def _command_line(component: Component, arguments: Mapping[str, Any]) -> str:
    words = ["tfopt", component.name]
    for name, value in arguments.items():
        if isinstance(value, bool):
            words.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
        elif value is not None:
            words += [f"--{name.replace('_', '-')}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return shlex.join(words)
