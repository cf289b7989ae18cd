"""Check what `push_model` registers before the push, and register the version after it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfopt.artifacts import Decision, Model
from tfopt.components.push_model.parameters import PushSettings, RegistrationSettings
from tfopt.components.push_model.push import Choice
from tfopt.components.push_model.registrations.kind import (
    PushedVersion,
    Split,
    Target,
    parse_name,
    parse_targets,
    register_with,
    update_with,
)
from tfopt.components.push_model.store_versions import StoreVersions, open_versions
from tfopt.components.push_model.version_record import read_record
from tfopt.components.push_model.versions import Versions
from tfopt.errors import ComponentError
from tfopt.model_store.withdrawals import canary_folder, find_canary, is_withdrawn, read_changes
from tfopt.processes.isolation import limited_children
from tfopt.processes.subprocess_call import run_in_child
from tfopt.reports.pushed_report import PushedReport
from tfopt.runtimes import environment
from tfopt.serving.layouts import resolve_layout
from tfopt.storage.remote_files import is_remote, local_path

LIMIT_S = 900  # MLflow gets the model's files

log = logging.getLogger(__name__)


def plan_registration(
    choice: Choice, requested: Model, decision: Decision | None, push: PushSettings, settings: RegistrationSettings
) -> tuple[PushedVersion, list[Target]]:
    """Describe the version that a push will add, without its number and path, and where it will be registered.

    Raises:
        ComponentError: If a registration cannot work, as far as this can be checked without the systems.
    """
    model = choice.model or requested
    destination = push.destination.rstrip("/")
    destination = destination if is_remote(destination) else str(local_path(push.destination).absolute())
    metrics, baseline_metrics = pushed_metrics(decision, choice)
    version = PushedVersion(
        name=settings.model_name or destination.rpartition("/")[2],
        destination=settings.destination_uri or destination,
        format=model.format,
        layout=resolve_layout(model, push.layout),
        model=model.name,
        digest=model.digest,
        reason=choice.reason,
        fallback=choice.fallback,
        environment=environment.read_variables(model),
        metrics=metrics,
        baseline_metrics=baseline_metrics,
    )
    targets = parse_targets(settings.register)
    for target in targets:
        parse_name(version.name)
        target.check(version)
    return version, targets


def register_version(report: PushedReport, version: PushedVersion, targets: Sequence[Target]) -> PushedReport:
    """Register a pushed version with all targets, each in a child process, and add what was written to the report.

    Raises:
        ComponentError: If some fail, after all were tried. The version stays, and registering it again completes what
            is missing.
    """
    if report.version is None or report.path is None:
        return report
    version = replace(version, number=report.version, path=report.path)
    versions = open_versions(report.destination)
    state = State(None, version.number, None, 0)
    if report.canary:
        state = State(None, report.previous, version.number, report.canary)
    references, failures = _call_each(targets, register_with, version, _find_split(versions, state, version))
    if failures:
        raise _failure(
            failures,
            f"{version.path} is pushed and complete, but not registered with ",
            "; then run push_model again: it adds no version and registers this one",
        )
    # Another command may have withdrawn the version meanwhile, or added a newer one.
    references |= update_registrations(versions, version, targets, state)
    return replace(report, registrations=references)


@dataclass(frozen=True)
class State:
    """State that the registrations of a version depend on."""

    withdrawn: str | None  # who withdrew the version, when and why
    newest: int | None  # the newest served version
    split: int | None  # the version that gets a share of the requests
    percent: int  # that share


def update_registrations(
    versions: Versions | StoreVersions,
    version: PushedVersion,
    targets: Sequence[Target],
    shown: State | None = None,
) -> dict[str, str]:
    """Update where a version is registered, until no other command changes it meanwhile; return what was changed.

    Args:
        versions: Those of the destination.
        version: The version.
        targets: Where it is registered.
        shown: What is registered already.

    Raises:
        ComponentError: If some fail, after all were tried. Repeating the command completes what is missing.
    """
    changed: dict[str, str] = {}
    while targets and (state := _read_state(versions, version.number)) != shown:
        record = read_record(versions.destination, state.newest) if state.newest is not None else None
        if state.newest is not None and record is None:
            log.warning("version %d was pushed by an earlier release: update its registrations yourself", state.newest)
            break
        served, split = record.pushed if record else None, _find_split(versions, state, version)
        changed, failures = _call_each(targets, update_with, version, served, state.withdrawn, split)
        if failures:
            raise _failure(
                failures,
                f"version {version.number} is {'withdrawn' if state.withdrawn else 'restored'}, but not at ",
                "; then repeat this command",
            )
        shown = state
    return changed


def _read_state(versions: Versions | StoreVersions, version: int) -> State:
    """Read who withdrew a version, the newest version, and the version that gets a share of the requests.

    That is the canary, unless another version than before is served next to it, or, if the version is a withdrawn
    canary, the served version with 0 percent.
    """
    changes, newest = read_changes(versions.destination), versions.newest()
    of_version, canary = changes.get(version, []), find_canary(changes, newest)
    withdrawn = str(of_version[-1]) if is_withdrawn(of_version) else None
    if canary and canary.served == newest:
        return State(withdrawn, newest, canary.version, canary.share)
    if withdrawn and newest is not None and of_version[-1].served == newest:
        return State(withdrawn, newest, newest, 0)
    return State(withdrawn, newest, None, 0)


def _find_split(versions: Versions | StoreVersions, state: State, version: PushedVersion) -> Split | None:
    """Return the version that gets a share of the requests, with the folder that only canaries are in."""
    if state.split is None:
        return None
    record = read_record(versions.destination, state.split)
    shown = record.pushed if record else version
    if state.percent:
        shown = replace(shown, destination=canary_folder(versions.destination, version.destination))
    return Split(shown, state.percent)


def _call_each(
    targets: Sequence[Target], function: Callable[..., str], *arguments: object
) -> tuple[dict[str, str], dict[Target, ComponentError]]:
    """Call a function of the targets, each in a child process; return what they wrote, and the errors."""
    references, failures = {}, {}
    for target in targets:
        doing = f"the registration with {target.kind}"
        try:
            with limited_children(None):  # it connects, and runs no model
                references[str(target)] = run_in_child(function, target, *arguments, doing=doing, limit_s=LIMIT_S)
        except ComponentError as error:
            failures[target] = error
    return references, failures


def _failure(failures: Mapping[Target, ComponentError], received: str, repeat: str) -> ComponentError:
    return ComponentError(
        received + "; ".join(f"{target}: {error.received}" for target, error in failures.items()),
        "; ".join(dict.fromkeys(error.expected for error in failures.values())),
        "; ".join(dict.fromkeys(error.fix for error in failures.values())) + repeat,
    )


def pushed_metrics(decision: Decision | None, choice: Choice) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of the pushed model and of the baseline."""
    if decision is None:
        return {}, {}
    content = decision.load()
    pushed = content.parent if choice.fallback else content.chosen
    return pushed.metrics, content.parent.metrics
