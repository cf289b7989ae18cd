import logging

from tfopt.artifacts import Blessing, Decision, Examples, InfraBlessing, KerasModel, Model, Pushed, Recipe
from tfopt.component import Group, Input, Output, component
from tfopt.components.push_model.parameters import PushSettings, RegistrationSettings
from tfopt.reports.pushed_report import PushedReport
from tfopt.serving.triton_scheduler import Scheduling


@component(image="tf", purpose="serving", cache="never", model_signature=True)
def push_model(
    model: Input[Model],
    blessing: Input[Blessing],
    pushed: Output[Pushed],
    infra_blessing: Input[InfraBlessing] | None = None,
    fallback: Input[Model] | None = None,
    examples: Input[Examples] | None = None,
    decision: Input[Decision] | None = None,
    trained: Input[KerasModel] | None = None,
    recipe: Input[Recipe] | None = None,
    *,
    settings: Group[PushSettings],
    scheduling: Group[Scheduling],
    registration: Group[RegistrationSettings],
) -> None:
    """Push a blessed model as the next numbered version of a folder.

    The version appears complete, by one rename, under the next free number; earlier versions remain. Concurrent pushes
    get different numbers. A model that is the newest version already is not pushed again, and one that was withdrawn
    (`tfopt withdraw`) is not pushed until it is restored. A model that is not blessed is not pushed; the step then
    succeeds and reports the reason, as TFX's Pusher does. With a ``fallback``, the parent is pushed instead, by the
    same rules.

    In an object store (``s3://``, ``gs://``, ``abfs://``), which has no renames, the pointer ``versions/8.json`` is
    written last: without it version 8 does not exist (docs/stores.md). A store without conditional writes is refused.

    Args:
        model: The model to push: only its deployed files, in the format that was measured.
        blessing: The blessing of this model.
        pushed: ``pushed.json``: whether a model was pushed, the folder, the version, the reason, and the environment
            variables that its server needs, if `configure_runtime` set any.
        infra_blessing: The result of `validate_serving` for this model and the fallback.
        fallback: The parent, pushed if the model is not blessed and is not the parent itself.
        examples: Source of the warm-up requests of TensorFlow Serving, and of the labels of a plain LiteRT file.
        decision: The decision of this run. Its metrics are stored in ``history/`` of the destination, once, whether or
            not a model is pushed; `select_model` compares later runs with them.
        trained: The Keras model that this run trained. If it, or a model made from it, is pushed, it replaces the one
            in ``trained/`` of the destination, from which `train` starts the next run (``destination``).
        recipe: The recipe that `tune_recipe` found in this run. It replaces the one in ``recipe/`` of the destination,
            which `tune_recipe` tries first in the next run (``destination``), and records whether its model is served.
        settings: Destination and content of the version.
        scheduling: Settings of Triton's scheduler.
        registration: Where the version is registered, and as what.

    Raises:
        ComponentError: If a blessing is for another model, a policy (docs/operate.md) does not allow the push, the
            layout cannot hold the format, the examples do not fit the model, or the destination cannot be written. The
            served versions are then unchanged. Also if a registration fails; the version is then pushed.
    """
    from tfopt.components.push_model.push import (  # imports NumPy
        check_policies,
        check_push,
        choose,
        push,
        store_for_next_run,
    )
    from tfopt.components.push_model.registration import plan_registration, register_version
    from tfopt.components.push_model.version_record import VersionRecord
    from tfopt.serving.provenance import describe_push

    choice = choose(model, blessing, infra_blessing, fallback)
    check_push(choice, settings, decision, trained, recipe)
    check_policies(choice, model, settings, decision, infra_blessing)
    version, targets = plan_registration(choice, model, decision, settings, registration)
    record = VersionRecord("", version, list(map(str, targets)), trained.digest if trained else None)
    predicate = describe_push(choice.model, decision, recipe) if choice.model else {}
    report = push(choice, model, examples, settings, scheduling, record, predicate)
    report = store_for_next_run(report, decision, trained, recipe)
    _write(pushed, register_version(report, version, targets))


def _write(pushed: Pushed, report: PushedReport) -> None:
    """Write and log the report, and add it to the metadata of the output."""
    from tfopt.runtimes import environment  # imports NumPy

    pushed.write(report)
    log = logging.getLogger(__name__)
    log.info("%s: %s", report.path or "not pushed", report.reason)
    variables = environment.format_variables(report.environment)
    if report.path and variables:
        log.info("the model was measured with %s: start its server with the same variables", variables)
        pushed.metadata["environment"] = variables
    pushed.metadata |= {
        "pushed": int(report.pushed),
        "pushed_destination": report.path or "",
        "pushed_version": str(report.version or ""),
        "fallback": int(report.fallback),
        "reason": report.reason,
        "blessing": report.blessing,
    }
    if report.canary:
        pushed.metadata["canary"] = f"{report.canary}%"
    for target, reference in report.registrations.items():
        log.info("registered with %s: %s", target, reference)
    if report.registrations:
        pushed.metadata["registrations"] = "; ".join(report.registrations.values())
