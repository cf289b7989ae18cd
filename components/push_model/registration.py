"""Check what `push_model` registers before the push, and register the version after it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tfopt.artifacts import Decision, Model
from tfopt.components.push_model.parameters import PushSettings, RegistrationSettings
from tfopt.components.push_model.push import Choice
from tfopt.components.push_model.registrations.kind import (
    PushedVersion,
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
from tfopt.model_store.withdrawals import is_withdrawn, read_changes
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
    references, failures = _call_each(targets, register_with, version)
    if failures:
        raise _failure(
            failures,
            f"{version.path} is pushed and complete, but not registered with ",
            "; then run push_model again: it adds no version and registers this one",
        )
    # Another command may have withdrawn the version meanwhile, or added a newer one.
    references |= update_registrations(open_versions(report.destination), version, targets, (None, version.number))
    return replace(report, registrations=references)


def update_registrations(
    versions: Versions | StoreVersions,
    version: PushedVersion,
    targets: Sequence[Target],
    shown: tuple[str | None, int | None] | None = None,
) -> dict[str, str]:
    """Update where a version is registered, until no other command changes it meanwhile; return what was changed.

    Args:
        versions: Those of the destination.
        version: The version.
        targets: Where it is registered.
        shown: Who withdrew the version, when and why, and the newest version, if they are registered already.

    Raises:
        ComponentError: If some fail, after all were tried. Repeating the command completes what is missing.
    """
    changed: dict[str, str] = {}
    while targets and (state := _read_state(versions, version.number)) != shown:
        withdrawn, newest = state
        record = read_record(versions.destination, newest) if newest is not None else None
        if newest is not None and record is None:
            log.warning("version %d was pushed by an earlier release: update its registrations yourself", newest)
            break
        served = record.pushed if record else None
        changed, failures = _call_each(targets, update_with, version, served, withdrawn)
        if failures:
            raise _failure(
                failures,
                f"version {version.number} is {'withdrawn' if withdrawn else 'restored'}, but not at ",
                "; then repeat this command",
            )
        shown = state
    return changed


def _read_state(versions: Versions | StoreVersions, version: int) -> tuple[str | None, int | None]:
    """Return who withdrew a version, when and why, and the number of the newest version."""
    changes = read_changes(versions.destination).get(version, [])
    return str(changes[-1]) if is_withdrawn(changes) else None, versions.newest()


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
