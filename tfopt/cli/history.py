"""The subcommand ``tfopt history``: the runs that a destination has recorded, and why each was pushed or not."""

import argparse
import json

from tfopt import formatting
from tfopt.cli.arguments import Subparsers, add_command, add_json_option
from tfopt.errors import ComponentError
from tfopt.formatting import visible
from tfopt.model_store.run_history import RunRecord, read_all_runs
from tfopt.reports import report_schema

METRICS = 2  # of the selected model, in each line: those of the evaluation come first


def add_history(subparsers: Subparsers) -> None:
    """Add ``tfopt history``."""
    parser = add_command(
        subparsers,
        "history",
        _history,
        "show the runs of a destination: version, selected model, metrics, and why it was pushed or not",
        "Show the run history of a destination, the newest run last: date (UTC), version, selected model, "
        "its metrics, and why it was pushed or not. A run that failed before the push is not in it: see tfopt runs.",
    )
    parser.add_argument(
        "destination", nargs="?", default="pushed", help="the folder or address of pushed versions (default: pushed)"
    )
    parser.add_argument("--last", type=int, default=30, metavar="N", help="the number of runs (default: %(default)s)")
    add_json_option(parser)


def _history(arguments: argparse.Namespace) -> int:
    if arguments.last < 1:
        raise ComponentError(f"--last {arguments.last}", "a number from 1", "write for example --last 30")
    runs = read_all_runs(arguments.destination)[-arguments.last :]
    if arguments.json:
        print(json.dumps([report_schema.dump(run) for run in runs], indent=1))
    elif runs:
        _print_table(runs)
    else:
        print(f"no runs in the history of {visible(arguments.destination)}")
    return 0


def _print_table(runs: list[RunRecord]) -> None:
    from rich.text import Text

    from tfopt.cli.terminal.tables import OutputConsole, plain_table  # imports rich

    table = plain_table()
    for title in ("date", "version", "selected", "metrics"):
        table.add_column(title, no_wrap=title != "metrics")
    table.add_column("why", ratio=1, overflow="fold")
    for run in runs:
        metrics = list(run.winner.metrics.items())[:METRICS]
        cells = (
            run.time[:16].replace("T", " "),
            str(run.version) if run.version and run.blessed else "-",
            run.winner.name,
            ", ".join(
                f"{formatting.title(name)} {formatting.amount(name, value)}"
                f"{' (unstable)' if name in run.winner.disturbed else ''}"
                for name, value in metrics
            ),
            run.reason,
        )
        table.add_row(*(Text(visible(cell)) for cell in cells))
    OutputConsole().print(table)
