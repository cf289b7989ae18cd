"""Recurring runs on a Kubeflow Pipelines server, one to a name: the API has no update, so a changed one is replaced."""

from dataclasses import dataclass
from typing import Any

from tfopt.errors import ComponentError, nearest
from tfopt.kfp.client import Server
from tfopt.kfp.cron import Cron
from tfopt.kfp.pod_options import Options
from tfopt.kfp.submit import Upload


@dataclass(frozen=True)
class Put:
    """What `put` did: ``created``, ``replaced`` or ``unchanged``, and whether the schedule is paused."""

    what: str
    paused: bool


def put(server: Server, name: str, cron: Cron, uploaded: Upload, options: Options) -> Put:
    """Have exactly one recurring run of this name: never two runs of it at a time, and none for the times it missed.

    One that is already so is left alone. Another is replaced: the new one is there before the old one goes, so that no
    failure in between leaves nothing. A paused one stays paused, since somebody paused it for a reason.

    Raises:
        ComponentError: When the name is empty or too long, or the server refuses.
    """
    if not 0 < len(name.strip()) <= 128:
        raise ComponentError(f"--name {name!r}", "1 to 128 characters", "pass --name NAME")
    old = _named(server, name)
    paused = bool(old) and all(_paused(found) for found in old)
    facts = _facts(cron.text, uploaded, options)
    if len(old) == 1 and _same(old[0], facts):
        return Put("unchanged", paused)
    with server.asked(f"create schedule {name}"):
        server.client.create_recurring_run(
            uploaded.experiment,
            name,
            cron_expression=cron.text,
            max_concurrency=1,
            no_catchup=True,
            params=uploaded.values,
            pipeline_id=uploaded.pipeline,
            version_id=uploaded.version,
            enabled=not paused,
            pipeline_root=options.root,
            service_account=options.service_account,
        )
    for found in old:
        _delete(server, found)
    return Put("replaced" if old else "created", paused)


def pause(server: Server, name: str) -> None:
    """Stop starting runs; one that is under way goes on."""
    for found in _existing(server, name):
        with server.asked(f"pause {name}"):
            server.client.disable_recurring_run(found.recurring_run_id)


def resume(server: Server, name: str) -> None:
    """Start runs again, from the next time on."""
    for found in _existing(server, name):
        with server.asked(f"resume {name}"):
            server.client.enable_recurring_run(found.recurring_run_id)


def delete(server: Server, name: str) -> None:
    """Remove a schedule; its runs stay."""
    for found in _existing(server, name):
        _delete(server, found)


def listed(server: Server) -> list[dict[str, Any]]:
    """Name, cron expression, and whether it is paused, of every schedule."""
    return [
        {"name": found.display_name, "cron": _cron(found), "paused": _paused(found)} for found in _named(server, "")
    ]


def _named(server: Server, name: str) -> list[Any]:
    given = {"namespace": server.namespace} if server.namespace else {}
    return server.all(server.client.list_recurring_runs, "recurring_runs", name, **given)


def _existing(server: Server, name: str) -> list[Any]:
    found = _named(server, name)
    if not found:
        known = [schedule["name"] for schedule in listed(server)]
        raise ComponentError(f"no schedule named {name}", "one that exists", nearest(name, known))
    return found


def _delete(server: Server, found: Any) -> None:
    with server.asked(f"delete schedule {found.display_name}"):
        server.client.delete_recurring_run(found.recurring_run_id)


def _facts(cron: str, uploaded: Upload, options: Options) -> tuple[Any, ...]:
    return (
        cron,
        uploaded.experiment,
        uploaded.version,
        uploaded.values,
        options.root,
        options.service_account,
        1,
        True,
    )


def _same(found: Any, facts: tuple[Any, ...]) -> bool:
    reference, config = found.pipeline_version_reference, found.runtime_config
    return facts == (
        _cron(found),
        found.experiment_id,
        reference.pipeline_version_id if reference else None,
        (config.parameters if config else None) or {},
        (config.pipeline_root if config else None) or None,
        found.service_account or None,
        int(found.max_concurrency or 0),
        bool(found.no_catchup),
    )


def _cron(found: Any) -> str | None:
    schedule = found.trigger.cron_schedule if found.trigger else None
    return schedule.cron if schedule else None


def _paused(found: Any) -> bool:
    return str(found.status) == "DISABLED"
