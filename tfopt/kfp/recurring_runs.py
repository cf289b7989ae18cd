"""Recurring runs on a Kubeflow Pipelines server, one per name; the API has no update, so changed ones are replaced."""

from typing import Any, Literal, TypedDict

from tfopt.error_messages import nearest
from tfopt.errors import ComponentError
from tfopt.kfp.client import Server
from tfopt.kfp.cron import Cron
from tfopt.kfp.pod_options import Options
from tfopt.kfp.submit import Upload


def put_schedule(server: Server, name: str, cron: Cron, uploaded: Upload, options: Options) -> tuple[str, bool]:
    """Make a recurring run the only one of its name, with one run active at a time and no catch-up of missed times.

    An equal recurring run is left unchanged. A different one is replaced: the new one is created before the old one is
    deleted, so that a failure in between does not lose the schedule. A paused schedule stays paused.

    Returns:
        ``created``, ``replaced`` or ``unchanged``, and whether the schedule is paused.

    Raises:
        ComponentError: If the name is empty or too long, or the server refuses.
    """
    if not 0 < len(name.strip()) <= 128:
        raise ComponentError(f"--name {name!r}", "1 to 128 characters", "pass --name NAME")
    old = _named(server, name)
    paused = bool(old) and all(_is_paused(recurring_run) for recurring_run in old)
    run = (uploaded.experiment, uploaded.version, uploaded.parameters, options.root, options.service_account)
    facts = (cron.text, *run, 1, True)  # with one active run, and no missed ones
    if len(old) == 1 and _facts_of(old[0]) == facts:
        return "unchanged", paused
    with server.translated_errors(f"create schedule {name}"):
        schedule = {"cron_expression": cron.text, "max_concurrency": 1, "no_catchup": True, "enabled": not paused}
        server.client.create_recurring_run(uploaded.experiment, name, **schedule, **uploaded.settings(options))
    for recurring_run in old:
        with server.translated_errors(f"delete schedule {name}"):
            server.client.delete_recurring_run(recurring_run.recurring_run_id)
    return ("replaced" if old else "created"), paused


def change_schedule(server: Server, name: str, action: Literal["pause", "resume", "delete"]) -> None:
    """Start no more runs, start runs again from the next matching time on, or delete a schedule; its runs remain.

    Raises:
        ComponentError: If there is no such schedule, or the server refuses.
    """
    recurring_runs = _named(server, name)
    if not recurring_runs:
        names = [schedule["name"] for schedule in list_schedules(server)]
        raise ComponentError(f"no schedule named {name}", "one that exists", nearest(name, names))
    client = server.client
    change = {
        "pause": client.disable_recurring_run,
        "resume": client.enable_recurring_run,
        "delete": client.delete_recurring_run,
    }[action]
    for recurring_run in recurring_runs:
        with server.translated_errors(f"{action} schedule {name}"):
            change(recurring_run.recurring_run_id)


class Schedule(TypedDict):
    """A recurring run: its name, its cron expression and whether it is paused."""

    name: str
    cron: str | None
    paused: bool


def list_schedules(server: Server) -> list[Schedule]:
    """List the name, the cron expression and the paused state of every schedule."""
    return [{"name": run.display_name, "cron": _cron(run), "paused": _is_paused(run)} for run in _named(server, "")]


def _named(server: Server, name: str) -> list[Any]:
    settings = {"namespace": server.namespace} if server.namespace else {}
    return server.list_all(server.client.list_recurring_runs, "recurring_runs", name, **settings)


def _facts_of(recurring_run: Any) -> tuple[Any, ...]:
    """Return what two equal recurring runs share."""
    reference, config = recurring_run.pipeline_version_reference, recurring_run.runtime_config
    return (
        _cron(recurring_run),
        recurring_run.experiment_id,
        reference.pipeline_version_id if reference else None,
        (config.parameters if config else None) or {},
        (config.pipeline_root if config else None) or None,
        recurring_run.service_account or None,
        int(recurring_run.max_concurrency or 0),
        bool(recurring_run.no_catchup),
    )


def _cron(recurring_run: Any) -> str | None:
    schedule = recurring_run.trigger.cron_schedule if recurring_run.trigger else None
    return schedule.cron if schedule else None


def _is_paused(recurring_run: Any) -> bool:
    return str(recurring_run.status) == "DISABLED"
