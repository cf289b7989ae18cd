"""Running a component: check everything first, work on a staged sibling, and let outputs appear whole or not at all."""

import contextlib
import glob
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import tfopt
from tfopt.artifacts import CARD, Artifact, Examples, Model
from tfopt.artifacts.storage import is_remote
from tfopt.declaration.component import Component, Port
from tfopt.errors import ComponentError, no_room
from tfopt.execution.failed_models import PARAMETER, as_row, refuse_failed
from tfopt.processes import heap as memory


def execute(component: Component, arguments: Mapping[str, Any]) -> dict[str, Artifact]:
    """Run a component on paths (or artifacts) and parameter values, and return its outputs.

    Raises:
        ComponentError: When something is missing or wrong. No output exists then.
    """
    ports = {**component.inputs, **component.outputs}
    parameters = component.check({name: value for name, value in arguments.items() if name not in ports})
    inputs = {port.name: _open(component, port, arguments.get(port.name)) for port in component.inputs.values()}
    targets = {port.name: _target(component, port, arguments.get(port.name)) for port in component.outputs.values()}
    with _staged(targets) as staged:
        with as_row(staged, parameters, _origin(component, inputs, parameters)):
            refuse_failed(inputs)
            _call(component, {**inputs, **staged, **component.arguments(parameters)})
            for artifact in staged.values():
                if not is_remote(artifact.uri):
                    artifact.check()
        for artifact in staged.values():
            if isinstance(artifact, Model):
                _write_card(component, artifact, inputs, parameters)
    memory.hand_back()  # engines run steps one after the other in one process
    return targets


def _call(component: Component, arguments: Mapping[str, Any]) -> None:
    try:
        component.function(**arguments)
    except SystemExit as error:  # even exit code 0: an engine takes that for a good end, or KFP for a warning
        raise ComponentError(
            f"{component.name} ended the process with {error.code}",
            "a component that returns, or raises",
            "return from the function (or from the code of yours that it calls) instead",
        ) from error


def _open(component: Component, port: Port, given: Any) -> Any:
    if not given and port.optional:
        return [] if port.many else None
    if not given:
        expected = f"{port.type.__name__}: {port.type.contents}"
        raise ComponentError(f"{component.name}: no {port.name}", expected, f"pass {port.name}=PATH")
    if port.many:
        listed = [given] if isinstance(given, str | Path | Artifact) else given
        return [_open_one(component, port, item) for item in listed]
    return _open_one(component, port, given)


def _open_one(component: Component, port: Port, given: Any) -> Artifact:
    known = given.metadata if isinstance(given, Artifact) else None
    uri = os.fspath(given)
    if not is_remote(uri):
        failed = isinstance(model := port.type(uri, known), Model) and model.failure
        return model if failed else port.type.open(uri, known)
    if not component.beam:
        raise ComponentError(f"{component.name}: {port.name}={uri}", "a local path", "copy it to this machine first")
    return port.type(uri, known)


def _target(component: Component, port: Port, given: Any) -> Artifact:
    if not given:
        raise ComponentError(f"{component.name}: no {port.name}", "a folder to write to", f"pass {port.name}=PATH")
    target = port.type(os.fspath(given))
    if not is_remote(target.uri) and target.path.exists() and (target.path.is_file() or any(target.path.iterdir())):
        raise ComponentError(
            f"{component.name}: {port.name}={target.uri} exists",
            "a new or empty folder",
            "name another folder, or remove that one if you no longer need it",
        )
    return target


@contextlib.contextmanager
def _staged(targets: dict[str, Artifact]) -> Iterator[dict[str, Artifact]]:
    """Yield a working sibling for each target; rename all of them at the end, or leave nothing."""
    siblings = {name: target if is_remote(target.uri) else _sibling(target) for name, target in targets.items()}
    local = {name: sibling for name, sibling in siblings.items() if not is_remote(sibling.uri)}
    placed: list[Path] = []
    try:
        for sibling in local.values():
            _make(sibling.path)
        yield siblings
        for name, sibling in local.items():
            with contextlib.suppress(FileNotFoundError):
                targets[name].path.rmdir()
            placed.append(sibling.path.rename(targets[name].path))
        for name, sibling in siblings.items():
            targets[name].metadata = sibling.metadata
    except BaseException as error:
        for path in placed:  # of several outputs, all or none
            shutil.rmtree(path, ignore_errors=True)
        if not isinstance(error, ComponentError) and (full := no_room(error)):
            raise full from error
        raise
    finally:
        for sibling in local.values():
            shutil.rmtree(sibling.path, ignore_errors=True)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ComponentError(
            str(error), "a folder that can be written", "write elsewhere or mend permissions"
        ) from error


def _sibling(target: Artifact) -> Artifact:
    path = target.path.absolute()
    for stale in path.parent.glob(f".{glob.escape(path.name)}.partial-*") if path.parent.is_dir() else ():
        owner = stale.name.rpartition("-")[2]
        if owner == str(os.getpid()) or not Path("/proc", owner).exists():  # killed; in a container each has number 1
            shutil.rmtree(stale, ignore_errors=True)
    return type(target)(path.with_name(f".{path.name}.partial-{os.getpid()}"))


def _write_card(component: Component, model: Model, inputs: Mapping[str, Any], parameters: dict[str, Any]) -> None:
    card = model.path / CARD
    if card.exists():  # a component that passes a model on passes its card on
        model.metadata |= {key: value for key, value in model.card.items() if isinstance(value, str | int | float)}
        return
    first = next(iter(inputs.values()), None)
    parent = first if isinstance(first, Model) else None  # a teacher, say, is none
    data = next((given for given in inputs.values() if isinstance(given, Examples)), None)
    kept = ("component", "parameters")
    ancestor = (
        {
            "name": parent.name,
            "digest": parent.digest,
            **{key: parent.card.get(key) for key in kept},
            **_recovery(parent),
        }
        if parent
        else None
    )
    facts: dict[str, Any] = {
        "name": component.name,
        "format": model.format,
        "digest": model.digest,
        "sizes": model.sizes(),
        "component": component.name,
        "parameters": {name: value for name, value in parameters.items() if name != PARAMETER},
        "parent": ancestor,
        "lineage": [*parent.card.get("lineage", []), ancestor] if parent else [],
        "data": {"digest": data.digest} if data else None,
        "versions": _versions(),
    }
    card.write_text(json.dumps(facts | model.metadata, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    shown = {"format": model.format, "digest": model.digest, "bytes": facts["sizes"].get("raw", 0)}
    model.metadata = shown | model.metadata


def _origin(component: Component, inputs: Mapping[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """What tells one failure from another."""
    models = {name: given.digest for name, given in inputs.items() if isinstance(given, Model)}
    return {"component": component.name, "parameters": parameters, **models}


def _recovery(model: Model) -> dict[str, Any]:
    """What a second round of fine-tuning gained, which is told of every model made from it."""
    found = (model.card.get("fine_tuned") or {}).get("recovery")
    return {"recovery": found} if found else {}


def _versions() -> dict[str, str]:
    found = {"tfopt": tfopt.__version__}
    for package in (
        "tensorflow",
        "tensorflow-cpu",
        "keras",
        "tf-keras",
        "ai-edge-litert",
        "onnxruntime",
        "tf2onnx",
        "openvino",
        "nncf",
        "numpy",
    ):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
