"""Notifications of ``tfopt run``, and the subcommand ``notify``, which sends them between runs."""

import argparse
import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfopt.cli.arguments import Subparsers, add_command, add_json_option, add_list_option
from tfopt.cli.run_files.run_file import RunFile, add_file_option
from tfopt.dag import tracing
from tfopt.dag.dag import Dag, Placeholder, Step
from tfopt.dag.policy_checks import PUSH
from tfopt.errors import ComponentError
from tfopt.formatting import visible
from tfopt.notifications.events import address_of
from tfopt.notifications.outbox import Source, notify
from tfopt.reports import report_schema

log = logging.getLogger(__name__)


def add_notify(subparsers: Subparsers) -> None:
    """Add ``tfopt notify``."""
    summary = "send the notifications of a run file that are due: tfopt run does so, too"
    description = (
        "Send the notifications that the key notify of a run file describes: about events since the last command, such "
        "as a withdrawn version or no push for days, and those that did not arrive. tfopt run does the same before and "
        "after a run. For runs on Kubeflow, and for models that are not trained any more, call it every day."
    )
    parser = add_command(subparsers, "notify", _notify, summary, description)
    parser.add_argument("pipeline", help="a shipped pipeline, or a .py file with a function of the file's name")
    parser.add_argument("--root", type=Path, help="the run's folder (default: runs/PIPELINE)")
    add_list_option(parser, "--set", "NAME=VALUE", "a source's path or a parameter's value")
    add_json_option(parser)
    add_file_option(parser)


def _notify(arguments: argparse.Namespace) -> int:
    run_file: RunFile = arguments.run_file
    if run_file.receiver is None:
        raise ComponentError("no receiver", "a run file with the key notify", "add notify: {url: https://HOST/PATH}")
    dag = tracing.load(arguments.pipeline)
    values = {name: parameter.default for name, parameter in dag.parameters.items()}
    used = [step.parameters.get("destination") for step in _pushes(dag)]
    names = [value.parameter.name for value in used if isinstance(value, Placeholder)]
    values |= run_file.values(dag, arguments.set, names=names)
    delivery = notify(run_file.receiver, source_of(dag, values, run_folder(dag, arguments.root)))
    if arguments.json:
        print(json.dumps(report_schema.dump(delivery), indent=1))
    else:
        for event in delivery.delivered:
            print(visible(f"delivered: {event.kind} on {event.time[:10]}: {event.text}"))
        print(f"{len(delivery.delivered)} delivered, {len(delivery.waiting)} waiting")
    if delivery.errors:
        received = f"{len(delivery.waiting)} notifications wait: {'; '.join(delivery.errors)}"
        fix = "check the receiver; the next tfopt notify or tfopt run sends them again"
        raise ComponentError(received, "a receiver that takes them, and destinations that can be read", fix)
    return 0


def run_folder(dag: Dag, root: Path | None) -> Path:
    """Return the folder of a run."""
    return (root or Path("runs", dag.name)).absolute()


def source_of(dag: Dag, values: Mapping[str, Any], root: Path) -> Source:
    """Return what the events of a pipeline are looked for in."""
    destinations = [value for push in _pushes(dag) if (value := push.value("destination", values))]
    return Source(dag.name, root, list(dict.fromkeys(map(address_of, destinations))))


def _pushes(dag: Dag) -> list[Step]:
    return [step for step in dag.steps.values() if step.component.name == PUSH]


@contextlib.contextmanager
def notified(run_file: RunFile, dag: Dag, values: Mapping[str, Any], root: Path) -> Iterator[None]:
    """Send what waits before the body of the ``with`` statement, and what it did after it, also if it fails."""
    _send(run_file, dag, values, root)
    try:
        yield
    except Exception:
        _send(run_file, dag, values, root)
        raise
    _send(run_file, dag, values, root)


def _send(run_file: RunFile, dag: Dag, values: Mapping[str, Any], root: Path) -> None:
    """Send notifications, without an effect on the run if that fails."""
    if run_file.receiver is None:
        return
    try:
        delivery = notify(run_file.receiver, source_of(dag, values, root))
    except (ComponentError, OSError) as error:
        log.warning("no notifications are sent: %s", error.received if isinstance(error, ComponentError) else error)
        return
    for text in delivery.errors:
        log.warning("%d notifications wait for the next tfopt run or tfopt notify: %s", len(delivery.waiting), text)
