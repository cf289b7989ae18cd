"""Push a chosen model as a version, and store what the next run starts from next to the versions."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from tfopt.artifacts import Decision, Examples, KerasModel, Model, Recipe
from tfopt.components.push_model.choice import Choice
from tfopt.components.push_model.parameters import PushSettings
from tfopt.components.push_model.store_versions import StoreVersions
from tfopt.components.push_model.version_record import VersionRecord, write_record
from tfopt.components.push_model.versions import Versions, WriteConfig, check_name, translate_errors
from tfopt.model_store import run_history, warm_start
from tfopt.reports.pushed_report import PushedReport
from tfopt.runtimes import environment
from tfopt.serving import version_manifest
from tfopt.serving.layouts import resolve_layout, version_files, write_version
from tfopt.serving.triton_config import written_config
from tfopt.serving.triton_scheduler import Scheduling
from tfopt.storage.remote_files import is_remote


def push(
    choice: Choice,
    requested: Model,
    examples: Examples | None,
    settings: PushSettings,
    scheduling: Scheduling,
    record: VersionRecord,
) -> PushedReport:
    """Push the chosen model, if there is one, and return the content of ``pushed.json``; errors as `push_model`.

    The record has what is known before the push.
    """
    model = choice.model or requested
    versions_class = StoreVersions if is_remote(settings.destination) else Versions
    versions = versions_class(settings.destination, resolve_layout(model, settings.layout), settings.signing_key)
    report = PushedReport(
        pushed=False,
        destination=versions.destination,
        version=None,
        path=None,
        layout=versions.layout,
        reason=choice.reason,
        previous=None,
        model=model.name,
        digest=model.digest,
        environment=environment.read_variables(model),
        fallback=choice.fallback,
        blessing=choice.reason,
    )
    if choice.model is None:
        return replace(report, previous=versions.newest())
    version_files(model, versions.layout)
    write_config: WriteConfig = nullcontext
    if versions.layout == "triton":
        parameters = {"tfopt_digest": model.digest, "tfopt_reason": choice.reason}
        write_config = partial(written_config, model, scheduling=scheduling, parameters=parameters)
    with versions.staged() as stage:
        facts = write_version(model, versions.layout, stage, examples, settings.warm_up_requests)
        result = versions.add(stage, settings.keep, write_config)
    if result.version is None:
        return replace(report, previous=result.previous, reason=result.reason)
    reason = result.reason
    if choice.fallback:
        reason = f"{reason}: {choice.reason}" if result.version == result.previous else choice.reason
    report = replace(
        report,
        pushed=True,
        version=result.version,
        path=str(versions.path(result.version)),
        previous=result.previous,
        reason=reason,
        **facts,
    )
    version = replace(record.pushed, number=result.version, path=report.path or "")
    with translate_errors(versions.destination):
        write_record(versions.destination, replace(record, digest=result.digest, pushed=version, config=result.config))
    return report


def check_push(
    choice: Choice, settings: PushSettings, decision: Decision | None, trained: KerasModel | None, recipe: Recipe | None
) -> None:
    """Check, before a version is added, the signing key, what will be stored, and the names it will have.

    Raises:
        ComponentError: If a report is damaged, the key cannot sign, or foreign files occupy the names.
    """
    if decision:
        decision.load()
    if recipe:
        recipe.read()
    version_manifest.check_key(settings.signing_key)
    if is_remote(settings.destination):
        return
    folder = Path(settings.destination).expanduser()
    check_name(folder / version_manifest.FOLDER)
    if decision:
        check_name(folder / run_history.FOLDER)
    if trained and choice.model:
        check_name(folder / warm_start.LINK, link=True)
    if recipe:
        check_name(folder / warm_start.RECIPE)


def store_for_next_run(
    report: PushedReport, decision: Decision | None, trained: KerasModel | None, recipe: Recipe | None
) -> PushedReport:
    """Store the metrics of this run, the trained model and the recipe next to the versions; add their paths.

    Raises:
        ComponentError: If the folder cannot be written.
    """
    destination = report.destination
    with translate_errors(destination):
        if decision:
            report = replace(report, history=run_history.write_run(destination, decision, report))
        if trained and report.path:
            report = replace(report, trained=warm_start.store_model(destination, trained))
        if recipe:
            served = report.digest if report.path else None
            report = replace(report, recipe=warm_start.store_recipe(destination, recipe, served))
    return report
