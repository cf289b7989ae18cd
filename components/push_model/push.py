"""Choose what to push, push it as a version, and store what the next run starts from next to the versions."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from tfopt.artifacts import CARD, Blessing, Decision, Examples, InfraBlessing, KerasModel, Model, Recipe
from tfopt.components.push_model.parameters import PushSettings, parse_canary
from tfopt.components.push_model.store_versions import open_versions
from tfopt.components.push_model.version_record import VersionRecord
from tfopt.components.push_model.versions import check_name, translate_errors
from tfopt.errors import ComponentError
from tfopt.model_store import run_history, warm_start
from tfopt.model_store.withdrawals import (
    CANARY,
    canary_folder,
    is_served,
    is_withdrawn,
    read_changes,
    served_versions,
)
from tfopt.reports.pushed_report import PushedReport
from tfopt.reports.serving_report import ServedModel
from tfopt.runtimes import environment
from tfopt.serving import version_manifest
from tfopt.serving.approvals import check_approval
from tfopt.serving.layouts import resolve_layout, version_files, write_version
from tfopt.serving.policy import read_policies
from tfopt.serving.triton_config import make_config
from tfopt.serving.triton_scheduler import Scheduling
from tfopt.storage import remote_files
from tfopt.storage.remote_files import is_remote, local_path
from tfopt.value_types import JsonObject


@dataclass(frozen=True)
class Choice:
    """The model to push, and the reason."""

    model: Model | None  # None to push nothing
    reason: str  # of the blessing; for the fallback or None, why the requested model is not pushed
    fallback: bool = False  # True if it is the fallback


def choose(model: Model, blessing: Blessing, infra: InfraBlessing | None, fallback: Model | None) -> Choice:
    """Choose by the blessing and the serving test of models; raise ComponentError if they are about other models."""
    permission = blessing.load()
    blessed_digest = permission.model_digest
    if blessed_digest not in (None, model.digest):
        raise ComponentError(
            f"{blessing.uri} blesses the model {str(blessed_digest)[:12]}, but {model.uri} is {model.digest[:12]}",
            "the blessing of this very model",
            "pass selected and blessing of the same select_model step",
        )
    tests = {row.digest: row for row in infra.load().models} if infra else {}
    if infra and model.digest not in tests:
        digests = ", ".join(digest[:12] for digest in tests)
        received = f"{infra.uri} is about {digests}, but {model.uri} is {model.digest[:12]}"
        expected = "the infra_blessing of this very model"
        raise ComponentError(received, expected, "pass the model to validate_serving that is passed here")
    test = tests.get(model.digest)
    if permission.blessed and (test is None or test.blessed):
        return Choice(model, permission.reason)
    refusal = permission.reason
    if permission.blessed and test:
        refusal = f"it {'failed the replay' if test.replayed else 'cannot be served'}: {test.reason}"
    choice = _choose_fallback(model, fallback, tests, f"not blessed: {refusal}")
    if choice.fallback and permission.parent_blessed is False:
        return Choice(None, f"not blessed: {refusal}; its parent does not meet the thresholds either")
    return choice


def _choose_fallback(model: Model, fallback: Model | None, tests: Mapping[str, ServedModel], refusal: str) -> Choice:
    if fallback is None or _deployed_files(fallback) == _deployed_files(model):  # the refused model is the parent
        return Choice(None, refusal)
    if tests:
        test = tests.get(fallback.digest)
        if test is None:
            return Choice(None, f"{refusal}; {fallback.name} has no serving test")
        if not test.blessed:
            return Choice(None, f"{refusal}; {fallback.name} is not pushed either: {test.reason}")
    return Choice(fallback, f"{fallback.name} instead of {model.name}, which is {refusal}", fallback=True)


def _deployed_files(model: Model) -> dict[str, str]:
    """Return the digests of the deployed files: equal for a bare model and the artifact made from it."""
    files = version_files(model, "plain")
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items() if name != CARD}


def push(
    choice: Choice,
    requested: Model,
    examples: Examples | None,
    settings: PushSettings,
    scheduling: Scheduling,
    record: VersionRecord,
    predicate: JsonObject,
) -> PushedReport:
    """Push the chosen model, if there is one, and return the content of ``pushed.json``; errors as `push_model`.

    The record has what is known before the push, the predicate is that of its provenance.
    """
    model = choice.model or requested
    layout = resolve_layout(model, settings.layout)
    versions = open_versions(settings.destination, layout, settings.signing_key, predicate)
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
    parameters = {"tfopt_digest": model.digest, "tfopt_reason": choice.reason}
    config = partial(make_config, model, scheduling=scheduling, parameters=parameters)
    with versions.staged() as stage:
        facts = write_version(model, versions.layout, stage, examples, settings.warm_up_requests)
        share = parse_canary(settings.canary) if settings.canary else None
        result = versions.add(stage, record, settings.keep, config if versions.layout == "triton" else None, share)
    if result.version is None:
        return replace(report, previous=result.previous, reason=result.reason)
    reason = result.reason
    if choice.fallback:
        reason = f"{reason}: {choice.reason}" if result.version == result.previous else choice.reason
    return replace(
        report,
        pushed=True,
        version=result.version,
        path=str(remote_files.join(canary_folder(versions.destination), str(result.version)))
        if result.share
        else str(versions.path(result.version)),
        canary=result.share,
        previous=result.previous,
        reason=reason,
        versions=model.card.versions,
        **facts,
    )


def check_push(
    choice: Choice, settings: PushSettings, decision: Decision | None, trained: KerasModel | None, recipe: Recipe | None
) -> None:
    """Raise ComponentError, before the push, for a damaged report, a useless key, or foreign files with its names."""
    if decision:
        decision.load()
    if recipe:
        recipe.read()
    version_manifest.check_key(settings.signing_key)
    if is_remote(settings.destination):
        return
    folder = local_path(settings.destination)
    check_name(folder / version_manifest.FOLDER)
    if settings.canary:
        check_name(folder / CANARY)
    if decision:
        check_name(folder / run_history.FOLDER)
    if trained and choice.model:
        check_name(folder / warm_start.LINK, link=True)
    if recipe:
        check_name(folder / warm_start.RECIPE)


def check_policies(
    choice: Choice, requested: Model, settings: PushSettings, decision: Decision | None, infra: InfraBlessing | None
) -> None:
    """Raise ComponentError if a policy that holds for the destination does not allow the push."""
    if choice.model is None:
        return
    for policy in read_policies(settings.destination):
        report, signed = decision.load() if decision else None, bool(settings.signing_key)
        rows = {row.digest: row for row in infra.load().models} if infra else {}
        test = rows.get(choice.model.digest)
        policy.check_push(
            choice.model.format,
            report,
            requested.digest,
            signed=signed,
            tested=infra is not None,
            replayed=(test is not None and test.replayed) or not served_versions(settings.destination),
        )
        check_approval(policy, settings.destination, choice.model, decision)


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
            report = replace(report, trained=_store_model(report, trained))
        if recipe:
            served = report.digest if report.path and not report.canary else None
            report = replace(report, recipe=warm_start.store_recipe(destination, recipe, served))
    return report


def _store_model(report: PushedReport, trained: KerasModel) -> str | None:
    """Store the trained model for the next training, or, with a canary, for its promotion; return its path."""
    destination = report.destination
    place = canary_folder(destination) if report.canary else destination
    path = warm_start.store_model(place, trained)
    changes = read_changes(destination).get(report.version or 0, ())
    if is_withdrawn(changes):  # another command withdrew or promoted it meanwhile
        warm_start.forget_model(place, trained.digest)
        return None
    if report.canary and is_served(changes):
        warm_start.forget_model(place, trained.digest)
        return warm_start.store_model(destination, trained)
    return path
