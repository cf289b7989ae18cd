"""Run a component: check its arguments, work on staged outputs, and publish the outputs whole or not at all."""

import contextlib
import contextvars
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.artifacts import Artifact, Examples, Model, PythonModule
from tfopt.artifacts.base import Outputs, is_location
from tfopt.data import beam_runner
from tfopt.data.learned_names import check_names
from tfopt.declaration.component import SIGNATURE, TRUST_MODEL_CODE, Component, Port
from tfopt.declaration.library import find
from tfopt.declaration.step_order import check_order
from tfopt.error_messages import disk_full_error
from tfopt.errors import ComponentError
from tfopt.execution.card_writer import LABEL, write_step_card
from tfopt.execution.failed_models import as_row, refuse_failed
from tfopt.execution.parity_check import check_parity
from tfopt.keras_models.model_code import is_trusted, trusted_code
from tfopt.processes import preloaded_processes
from tfopt.processes.isolation import (
    Limits,
    isolate,
    limited_children,
    limits_of_children,
    limits_of_step,
    step_process,
    warn_without_isolation,
)
from tfopt.processes.memory import trim_heap
from tfopt.processes.preloaded_processes import is_in_run
from tfopt.processes.subprocess_call import calls_in_this_process, run_in_child
from tfopt.processes.supervision import recorded_work
from tfopt.storage import publication, remote_files, staging
from tfopt.storage.folder_lock import lock_folder
from tfopt.storage.owned_files import check_links
from tfopt.storage.remote_files import is_remote
from tfopt.storage.scratch import scratch_folder

MEASURING = ("measurement", "selection", "serving")  # purposes of components whose steps nothing may disturb

_running: contextvars.ContextVar[Component | None] = contextvars.ContextVar("running component", default=None)


def execute(component: Component, arguments: Mapping[str, Any]) -> dict[str, Artifact]:
    """Run a component on paths, artifacts or Python objects, and parameter values, and return its outputs by name.

    Raises:
        ComponentError: If an argument is missing or wrong, or the work fails. No output exists then.
        TypeError: If another component runs this one without declaring it; addressed to that component's author.
    """
    _check_declared(component)
    with scratch_folder():
        if not all(is_location(arguments.get(port.name), port.many) for port in component.inputs.values()):
            from tfopt.execution.object_inputs import save_objects  # NumPy, which compiling a pipeline must not import

            arguments = save_objects(component, arguments)
        return _execute(component, arguments)


def run_component(name: str, arguments: dict[str, object], *, doing: str, limit_s: float | None = None) -> None:
    """Run a component, found by name, in a new process that also does its conversions; see `run_in_child`."""
    component = find(name)
    _check_declared(component)
    if component.model_signature and is_trusted():
        arguments = {**arguments, TRUST_MODEL_CODE.name: True}
    with limited_children(None):  # the component limits its process
        run_in_child(_run_by_name, name, arguments, doing=doing, limit_s=limit_s)


def _run_by_name(name: str, arguments: dict[str, object]) -> None:
    with calls_in_this_process(), step_process():
        find(name)(**arguments)


def _execute(component: Component, arguments: Mapping[str, Any]) -> dict[str, Artifact]:
    ports = {**component.inputs, **component.outputs}
    parameters = component.check({name: value for name, value in arguments.items() if name not in ports})
    inputs = {port.name: _open(component, port, arguments.get(port.name)) for port in component.inputs.values()}
    targets = {port.name: _target(component, port, arguments.get(port.name)) for port in component.outputs.values()}
    for target in targets.values():  # of all outputs before one is refused: they were placed together
        _remove_interrupted(target)
    for name, target in targets.items():
        _check_empty(component, name, target)
    _check_distinct(component, targets)
    trusted = bool(parameters.get(TRUST_MODEL_CODE.name)) or (_running.get() is not None and is_trusted())
    with (
        trusted_code(trusted),
        _staged(component, targets) as staged,
        limited_children(None if trusted else _limits(component, inputs, staged)),
    ):
        if component.model_signature:
            for value in [*inputs.values(), *staged.values()]:
                for artifact in value if isinstance(value, list) else [value]:
                    if isinstance(artifact, Model):
                        artifact.signature = str(parameters[SIGNATURE.name])
        models = {name: value.digest for name, value in inputs.items() if isinstance(value, Model)}
        origin = {"component": component.name, "parameters": parameters, **models}
        with as_row(staged, parameters, origin):
            refuse_failed(inputs)
            _check_learned_names(inputs, parameters)
            if isinstance(parent := next(iter(inputs.values()), None), Model):
                check_order(parent, component)
            if component.purpose not in MEASURING:
                preloaded_processes.start_ahead()
            outputs = [str(_resolved(target)) for target in targets.values() if not is_remote(target.uri)]
            with recorded_work({"component": component.name, "outputs": outputs}):
                _isolate_step(component, targets, parameters)
                _call(component, {**inputs, **staged, **component.arguments(parameters)})
            for artifact in staged.values():
                if not is_remote(artifact.uri):
                    artifact.check()
                if isinstance(artifact, Model):
                    check_parity(component, artifact, inputs, parameters)
        for artifact in staged.values():
            if isinstance(artifact, Model):
                write_step_card(component, artifact, inputs, parameters)
    trim_heap()  # engines run steps one after the other in one process
    return Outputs(targets)


def _limits(component: Component, inputs: Mapping[str, Any], staged: Mapping[str, Artifact]) -> Limits | None:
    """Return the limits of processes that run models which are not trusted; None without such, or with a user's module.

    Beam's workers connect to each other, and read what is remote.
    """
    if not component.model_signature or any(isinstance(value, PythonModule) for value in inputs.values()):
        return None
    warn_without_isolation()
    listed = [value for item in inputs.values() if item for value in (item if isinstance(item, list) else [item])]
    is_remote_work = any(is_remote(artifact.uri) for artifact in [*listed, *staged.values()])
    needs_tcp = component.beam and (is_remote_work or bool(beam_runner.current_arguments()))
    return Limits(tuple(artifact.uri for artifact in staged.values() if not is_remote(artifact.uri)), needs_tcp)


def _isolate_step(component: Component, targets: Mapping[str, Artifact], parameters: Mapping[str, Any]) -> None:
    """Limit this process, if it runs only this step, to its outputs, the folders that they are in, and temporary files.

    Components that serve and push start servers and connect; they load models in child processes.
    """
    limits, own = limits_of_children(), limits_of_step()
    if limits is None or own is None or component.purpose == "serving" or _running.get() or is_in_run():
        return
    folders = [_resolved(target).parent for target in targets.values() if not is_remote(target.uri)]
    addresses = [*(target.uri for target in targets.values()), *map(str, parameters.values())]  # a device's, too
    tcp = limits.tcp or any(map(is_remote, addresses))
    isolate(Limits((*limits.folders, *own.folders, *map(str, folders), tempfile.gettempdir()), tcp))


def _check_learned_names(inputs: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
    """Raise ComponentError if examples number classes or packed columns otherwise than one of the models learned.

    Models of a list are not compared: components have a row for each of them, with its error.
    """
    examples = next((value for value in inputs.values() if isinstance(value, Examples)), None)
    models = {name: value for name, value in inputs.items() if isinstance(value, Model) and not is_remote(value.uri)}
    if examples is None or is_remote(examples.uri) or not any(model.card.learned for model in models.values()):
        return
    from tfopt.data.feature_schema import read_manifest  # NumPy, which compiling a pipeline must not import

    manifest = read_manifest(examples.path)
    for name, model in models.items():
        check_names(model.card, manifest, parameters.get(LABEL), f"{name} {model.uri}")


def _check_declared(component: Component) -> None:
    """Raise TypeError if a component that is running does not declare in ``runs`` that it runs this one.

    The declaration is part of the cache key: without it, results would be reused after this component's code changed.
    """
    caller = _running.get()
    if caller and component.path.startswith("tfopt.components.") and component.name not in caller.runs:
        raise TypeError(f"{caller.name} runs {component.name}: declare it, @component(runs=({component.name!r}, …))")


def _call(component: Component, arguments: Mapping[str, Any]) -> None:
    token = _running.set(component)
    try:
        component.function(**arguments)
    except SystemExit as error:  # exit code 0 too: an engine would count it as success, KFP as a warning
        received = f"{component.name} ended the process with {error.code}"
        fix = "return from the function (or from your code that it calls) instead"
        raise ComponentError(received, "a component that returns, or raises", fix) from error
    finally:
        _running.reset(token)


def _open(component: Component, port: Port, value: Any) -> Any:
    if not value and port.optional:
        return [] if port.many else None
    if not value:
        expected = f"{port.type.__name__}: {port.type.contents}"
        raise ComponentError(f"{component.name}: no {port.name}", expected, f"pass {port.name}=PATH")
    if port.many:
        items = [value] if isinstance(value, str | Path | Artifact) else value
        return [_open_one(component, port, item) for item in items]
    return _open_one(component, port, value)


def _open_one(component: Component, port: Port, value: Any) -> Artifact:
    metadata = value.metadata if isinstance(value, Artifact) else None
    uri = os.fspath(value)
    if component.beam and is_remote(uri):  # the workers read it
        return port.type(uri, metadata)
    _check_characters(port, uri)
    path = remote_files.local_copy(uri)
    if issubclass(port.type, Model) and Path(path).suffix == ".pb" and Path(path).is_file():
        _check_frozen_graph(component, port, uri)
    failed = isinstance(model := port.type(path, metadata), Model) and model.failure
    try:
        return model if failed else port.type.open(path, metadata)
    except ComponentError as error:  # the user knows the address, not the path of its copy
        raise ComponentError(error.received.replace(path, uri), error.expected, error.fix) from error


def _check_frozen_graph(component: Component, port: Port, uri: str) -> None:
    """Raise ComponentError for a GraphDef, unless the component takes the names of its inputs and outputs."""
    if not {"inputs", "outputs"} <= set(component.parameters):
        raise ComponentError(
            f"{uri}: a frozen graph, which does not name its inputs and outputs",
            port.type.contents,
            f"make a SavedModel of it: tfopt optimize_graph --model {uri} --inputs NODE --outputs NODE "
            "--optimized PATH, and pass that; without names, the command lists those of the graph",
        )


def _target(component: Component, port: Port, value: Any) -> Artifact:
    if not value:
        raise ComponentError(f"{component.name}: no {port.name}", "a folder to write to", f"pass {port.name}=PATH")
    target = port.type(os.fspath(value))
    _check_characters(port, target.uri)
    return target


def _remove_interrupted(target: Artifact) -> None:
    if is_remote(target.uri):
        publication.remove_interrupted_upload(target.uri)
    else:
        check_links(target.path.absolute())
        path = _resolved(target)
        publication.remove_interrupted(path)
        staging.remove_abandoned(path.parent, path.name)


def _check_empty(component: Component, name: str, target: Artifact) -> None:
    if is_remote(target.uri):
        has_content = bool(remote_files.list_remote_files(target.uri))
    else:
        has_content = target.path.is_file() or (target.path.exists() and any(target.path.iterdir()))
    if has_content:
        fix = "name another folder, or remove that one if you no longer need it"
        raise ComponentError(f"{component.name}: {name}={target.uri} exists", "a new or empty folder", fix)


def _check_distinct(component: Component, targets: Mapping[str, Artifact]) -> None:
    """Raise ComponentError if an output is at the path of another one, or below it."""
    paths = {name: _resolved(target) for name, target in targets.items() if not is_remote(target.uri)}
    for name, path in paths.items():
        for other in paths.keys() - {name}:
            if path.is_relative_to(paths[other]):
                received = f"{component.name}: {name}={path} and {other}={paths[other]}"
                expected = "a folder for each output, none of them in another one"
                raise ComponentError(received, expected, f"name another folder for {name}")


def _check_characters(port: Port, uri: str) -> None:
    is_for_tensorflow = issubclass(port.type, Model | Examples)
    remote_files.check_characters(uri, remote_files.PATTERN if is_for_tensorflow else "")


@contextlib.contextmanager
def _staged(component: Component, targets: dict[str, Artifact]) -> Iterator[dict[str, Artifact]]:
    """Yield a staging folder for each target; rename or upload all of them at the end, or leave nothing.

    The workers of a Beam component write to a remote target themselves.
    """
    placed: list[str] = []
    with contextlib.ExitStack() as locks:
        folder = Path(locks.enter_context(tempfile.TemporaryDirectory(prefix="tfopt-")))
        staged = {
            name: target if component.beam and is_remote(target.uri) else _staging_artifact(target, folder / name)
            for name, target in targets.items()
        }
        local = {name: artifact for name, artifact in staged.items() if not is_remote(artifact.uri)}
        try:
            for artifact in local.values():
                try:
                    artifact.path.mkdir(parents=True)
                except OSError as error:
                    fix = "write elsewhere, or change the permissions"
                    raise ComponentError(str(error), "a writable folder", fix) from error
                locks.enter_context(lock_folder(artifact.path))
            yield staged
            for name in [name for name in local if is_remote(targets[name].uri)]:
                placed.append(targets[name].uri)  # it was empty before
                publication.upload(local.pop(name).path, targets[name].uri)
            publication.place({artifact.path: _resolved(targets[name]) for name, artifact in local.items()})
            for name, artifact in staged.items():
                targets[name].metadata = artifact.metadata
        except BaseException as error:
            for uri in placed:  # of several outputs, all or none
                with contextlib.suppress(ComponentError):  # the first error is the one to report
                    publication.remove_upload(uri)
            if not isinstance(error, ComponentError) and (full := disk_full_error(error)):
                raise full from error
            raise
        finally:
            for artifact in local.values():
                staging.remove_folder(artifact.path)


def _staging_artifact(target: Artifact, folder: Path) -> Artifact:
    """Return where an output is written first: next to its path, or in a temporary folder for an address."""
    if is_remote(target.uri):
        return type(target)(folder / target.uri.rstrip("/").rpartition("/")[2])
    path = _resolved(target)
    return type(target)(staging.new_folder_path(path.parent, path.name))


def _resolved(target: Artifact) -> Path:
    """Return the absolute path of an output, which may be a link to an empty folder."""
    return Path(os.path.realpath(target.path))
