"""Check what `push_model` registers before the push, and register the version after it."""

from dataclasses import replace
from pathlib import Path

from tfopt.artifacts import Decision, Model
from tfopt.components.push_model.parameters import PushSettings, RegistrationSettings
from tfopt.components.push_model.registrations import targets
from tfopt.components.push_model.registrations.pushed_version import PushedVersion
from tfopt.components.push_model.registrations.target import parse_name, parse_targets
from tfopt.reports.pushed_report import PushedReport
from tfopt.serving.layouts import resolve_layout
from tfopt.storage.remote_files import is_remote


def check_registration(
    model: Model, decision: Decision | None, push: PushSettings, settings: RegistrationSettings
) -> None:
    """Check, before a version is added, what can be checked without the systems to register with.

    Raises:
        ComponentError: If a registration cannot work.
    """
    if not settings.register:
        return
    destination = _destination(push.destination)
    parse_name(settings.model_name or default_name(destination))
    targets.check_targets(
        parse_targets(settings.register),
        destination=settings.destination_uri or destination,
        format=model.format,
        layout=resolve_layout(model, push.layout),
        has_metrics=decision is not None,
    )


def register(
    report: PushedReport, model: Model | None, decision: Decision | None, settings: RegistrationSettings
) -> PushedReport:
    """Register a pushed version and add what was written to the report; without a version, return the report.

    Raises:
        ComponentError: If a registration fails. The version stays, and registering it again completes what is missing.
    """
    if not settings.register or model is None or report.version is None or report.path is None:
        return report
    metrics, baseline_metrics = pushed_metrics(decision, report)
    version = PushedVersion(
        name=settings.model_name or default_name(report.destination),
        number=report.version,
        path=report.path,
        destination=settings.destination_uri or report.destination,
        format=model.format,
        layout=report.layout,
        model=report.model,
        digest=report.digest,
        reason=report.blessing,
        fallback=report.fallback,
        environment=report.environment,
        metrics=metrics,
        baseline_metrics=baseline_metrics,
    )
    references = targets.register(parse_targets(settings.register), version)
    return replace(report, registrations=references)


def default_name(destination: str) -> str:
    """Return the last part of a path or an address.

    >>> default_name("s3://bucket/models/digits/")
    'digits'
    """
    return destination.rstrip("/").rpartition("/")[2]


def pushed_metrics(decision: Decision | None, report: PushedReport) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics of the pushed model and of the baseline."""
    if decision is None:
        return {}, {}
    content = decision.load()
    pushed = content.parent if report.fallback else content.chosen
    return pushed.metrics, content.parent.metrics


def _destination(text: str) -> str:
    return text if is_remote(text) else str(Path(text).expanduser().absolute())
