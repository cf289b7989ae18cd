"""The subcommands about a destination: ``history``, ``withdraw``, ``restore`` and ``promote``."""

import argparse
import itertools
import json
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

from tfopt import formatting
from tfopt.cli.arguments import CommandParser, Subparsers, add_command, add_json_option
from tfopt.errors import ComponentError
from tfopt.formatting import visible
from tfopt.model_store.run_history import RunRecord, read_all_runs
from tfopt.model_store.withdrawals import Changes, is_canary, read_changes
from tfopt.reports import report_schema
from tfopt.storage import remote_files

if TYPE_CHECKING:
    from tfopt.components.push_model.withdraw import Withdrawal

NOT_BLESSED = 3  # exit code
METRICS = 2  # of the selected model, in each line: those of the evaluation come first


class NotBlessedError(ComponentError):
    """A replay did not bless a canary."""

    exit_code = NOT_BLESSED


def add_history(subparsers: Subparsers) -> None:
    """Add ``tfopt history``."""
    summary = "show the runs of a destination: version, selected model, metrics, and why it was pushed or not"
    description = (
        "Show the run history of a destination, the newest run last: date (UTC), version, selected model, its metrics, "
        "and why it was pushed or not; also who withdrew, restored or promoted a version. A run that failed before the "
        "push is not in it: see tfopt runs."
    )
    parser = add_command(subparsers, "history", _history, summary, description)
    text = "the folder or address of pushed versions (default: pushed)"
    parser.add_argument("destination", nargs="?", default="pushed", help=text)
    parser.add_argument("--last", type=int, default=30, metavar="N", help="the number of runs (default: %(default)s)")
    add_json_option(parser)


def add_withdraw(subparsers: Subparsers) -> None:
    """Add ``tfopt withdraw``."""
    summary = "take a pushed version back: the version before it is served, and the same model is not pushed again"
    description = (
        "Take a pushed version back. Its files move to DESTINATION/withdrawn, so that model servers load the version "
        "before it. Its number is not used again, later runs do not push the same model again, and do not compare with "
        "it or train on from it. A canary is taken back the same way. Registrations follow. A command that was killed "
        "is completed by the next one."
    )
    parser = add_command(subparsers, "withdraw", _withdraw, summary, description)
    _add_version(parser, "the canary, or the newest one")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="why, for the history")
    text = "let later runs push the same model again, under another number"
    parser.add_argument("--allow", action="store_true", help=text)
    add_json_option(parser)


def add_restore(subparsers: Subparsers) -> None:
    """Add ``tfopt restore``."""
    summary = "serve a withdrawn version again, under its number"
    description = "Undo tfopt withdraw: the files of a version move back to DESTINATION."
    parser = add_command(subparsers, "restore", _restore, summary, description)
    _add_version(parser, "the one that was withdrawn last")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the history")
    add_json_option(parser)


def add_promote(subparsers: Subparsers) -> None:
    """Add ``tfopt promote``."""
    summary = "serve a canary to all, or change its share of the requests"
    description = (
        "Serve a canary (push_model --canary) to all: its files move to DESTINATION, so that model servers load it. Or "
        "change its share with --to. With --verdict, the infra_blessing that replay wrote about requests of the "
        "canary, it is promoted only if it was blessed. Registrations follow. A command that was killed is completed "
        "by the next one."
    )
    epilog = f"exit code {NOT_BLESSED}: the verdict did not bless the canary"
    parser = add_command(subparsers, "promote", _promote, summary, description, epilog=epilog)
    _add_version(parser, "the canary")
    text = "its new share of the requests (default: %(default)s)"
    parser.add_argument("--to", default="100%", metavar="50%", help=text.replace("%(default)s", "100%%"))
    parser.add_argument("--verdict", metavar="FOLDER", help="an infra_blessing of replay, which must have blessed it")
    text = "withdraw the canary if the verdict did not bless it"
    parser.add_argument("--or-withdraw", action="store_true", help=text)
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the history")
    add_json_option(parser)


def _add_version(parser: CommandParser, default: str) -> None:
    parser.add_argument("destination", help="the folder or address of pushed versions")
    text = f"the number of the version (default: {default})"
    parser.add_argument("version", nargs="?", type=int, metavar="N", help=text)


def _withdraw(arguments: argparse.Namespace) -> int:
    from tfopt.components.push_model.withdraw import withdraw  # imports NumPy

    if not arguments.reason.strip():
        raise ComponentError("--reason without a text", "why the version is withdrawn", "write --reason 'wrong labels'")
    result = withdraw(arguments.destination, arguments.version, arguments.reason, allow=arguments.allow)
    return _print_change(result, arguments)


def _restore(arguments: argparse.Namespace) -> int:
    from tfopt.components.push_model.withdraw import restore  # imports NumPy

    return _print_change(restore(arguments.destination, arguments.version, arguments.reason), arguments)


def _promote(arguments: argparse.Namespace) -> int:
    from tfopt.components.push_model.canary_verdict import read_verdict  # imports NumPy
    from tfopt.components.push_model.parameters import parse_share
    from tfopt.components.push_model.withdraw import promote, withdraw

    destination, version, reason = arguments.destination, arguments.version, arguments.reason
    share = parse_share(arguments.to)
    if arguments.or_withdraw and not arguments.verdict:
        raise ComponentError("--or-withdraw without --verdict", "the verdict to follow", "add --verdict FOLDER")
    if arguments.verdict:
        version, row = read_verdict(destination, version, arguments.verdict)
        reason = reason or f"replay: {row.reason}"
        if not row.blessed and arguments.or_withdraw:
            _print_change(withdraw(destination, version, reason), arguments)
            return NOT_BLESSED
        if not row.blessed:
            command = f"tfopt withdraw {shlex.quote(destination)} {version} --reason {shlex.quote(row.reason)}"
            fix = f"take it back: {command}, or repeat this command with --or-withdraw"
            raise NotBlessedError(f"version {version} is not blessed: {row.reason}", "a canary that was blessed", fix)
    return _print_change(promote(destination, version, reason, share), arguments)


def _print_change(result: "Withdrawal", arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(asdict(result), indent=1))
        return 0
    print(visible(str(result.change)))
    for target, text in result.updates.items():
        print(visible(f"{target}: {text}"))
    served = "no version is left to serve" if result.served is None else f"the newest version is {result.served}"
    if is_canary([result.change]):
        served = f"the other requests are for version {result.served}"
    print(f"{served}, in {visible(arguments.destination)}")
    return 0


def _history(arguments: argparse.Namespace) -> int:
    if arguments.last < 1:
        raise ComponentError(f"--last {arguments.last}", "a number from 1", "write for example --last 30")
    remote_files.check_scheme(arguments.destination)
    runs = read_all_runs(arguments.destination, arguments.last)
    changes = read_changes(arguments.destination)
    if arguments.json:
        facts = [report_schema.dump(run) for run in runs]
        for fact, run in zip(facts, runs, strict=True):
            if run.blessed and (later := changes.get(run.version or 0)):  # what happened to the version after the push
                fact["changes"] = [report_schema.dump(change) for change in later]
        print(json.dumps(facts, indent=1))
    elif runs or changes:
        _print_table(runs, changes)
    else:
        print(f"no runs in the history of {visible(arguments.destination)}")
    return 0


def _print_table(runs: list[RunRecord], changes: Changes) -> None:
    from rich.text import Text

    from tfopt.cli.terminal.tables import OutputConsole, plain_table  # imports rich

    table = plain_table()
    for title in ("date", "version", "selected", "metrics"):
        table.add_column(title, no_wrap=title != "metrics")
    table.add_column("why", ratio=1, overflow="fold")
    rows = [(run.time, _cells(run)) for run in runs]
    later = itertools.chain.from_iterable(changes.values())
    rows += [(change.time, (str(change.version), change.action, "", str(change))) for change in later]
    for time, cells in sorted(rows):
        table.add_row(*(Text(visible(cell)) for cell in (time[:16].replace("T", " "), *cells)))
    OutputConsole().print(table)


def _cells(run: RunRecord) -> tuple[str, str, str, str]:
    metrics = ", ".join(
        f"{formatting.title(name)} {formatting.amount(name, value)}"
        f"{' (unstable)' if name in run.winner.disturbed else ''}"
        for name, value in list(run.winner.metrics.items())[:METRICS]
    )
    return (str(run.version) if run.version and run.blessed else "-", run.winner.name, metrics, run.reason)
