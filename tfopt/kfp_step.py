"""The inside of a Kubeflow step: KFP's ExecutorInput in, the component run, KFP's ExecutorOutput out. Needs no kfp."""

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfopt import artifacts
from tfopt.component import Component, Port

log = logging.getLogger("tfopt")


def run_step(component: Component, executor_input: str) -> None:
    """Be the container: run the component as KFP's ExecutorInput says, and write its ExecutorOutput.

    Raises:
        ComponentError: The component's own. No output file is written then, and the step fails.
    """
    message = json.loads(executor_input)
    given, wanted = message.get("inputs", {}), message["outputs"]
    placed = {
        name: found["artifacts"][0] for name, found in given.get("artifacts", {}).items() if found.get("artifacts")
    }
    inputs = {port.name: _given(port, placed) for port in component.inputs.values()}
    values = {name: _typed(component, name, value) for name, value in given.get("parameterValues", {}).items()}
    targets = {name: found["artifacts"][0] for name, found in wanted["artifacts"].items()}
    arguments = {**inputs, **{name: _local(target["uri"]) for name, target in targets.items()}, **values}
    log.info("the same by hand: %s", _command_line(component, arguments))
    outputs = component(**arguments)
    listed = {
        name: {"artifacts": [_shown(component.outputs[name], target, outputs[name])]}
        for name, target in targets.items()
    }
    file = Path(wanted["outputFile"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"artifacts": listed}))


def _given(port: Port, placed: Mapping[str, Any]) -> Any:
    if not port.many:
        return _local(placed[port.name]["uri"].removesuffix(f"/{port.type.page}")) if port.name in placed else None
    keys = [key for key in placed if key.startswith(f"{port.name}_") and key.removeprefix(f"{port.name}_").isdigit()]
    return [_local(placed[key]["uri"]) for key in sorted(keys, key=lambda key: int(key.rpartition("_")[2]))]


def _shown(port: Port, target: Mapping[str, Any], output: artifacts.Artifact) -> dict[str, Any]:
    """What KFP's interface is told: metadata, and for a page the page itself, since it renders a file only."""
    uri = f"{target['uri']}/{port.type.page}" if port.type.page else target["uri"]
    return {**target, "uri": uri, "metadata": _plain(output.metadata)}


def _local(uri: str) -> str:
    """Where KFP's launcher mounts or downloads an artifact."""
    for scheme in ("gs", "s3", "minio"):
        if uri.startswith(f"{scheme}://"):
            return f"/{'gcs' if scheme == 'gs' else scheme}/{uri.removeprefix(f'{scheme}://')}"
    return uri.removeprefix("file://")


def _typed(component: Component, name: str, value: Any) -> Any:
    """KFP hands every number over as a double."""
    parameter = component.parameters.get(name)
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
