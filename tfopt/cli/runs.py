"""The subcommands for the folders of runs: list them, and remove old ones."""

import argparse
import json
from pathlib import Path

from tfopt.artifacts import report_schema
from tfopt.artifacts.run_folder import CONTENT
from tfopt.cli.arguments import Subparsers, add_json_option
from tfopt.cli.run_record import RunRecord, content_size, old_runs, read_records, remove_run
from tfopt.errors import ComponentError
from tfopt.formatting import data_size, indented

FOLDER = Path("runs")


def add_runs(subparsers: Subparsers) -> None:
    """Add ``tfopt runs``."""
    parser = subparsers.add_parser(
        "runs",
        help="list the folders of runs: date, pipeline, outcome, selected model",
        description="List the folders of runs, the newest first, with the last run in each of them. Times are in UTC.",
    )
    _add_folder(parser)
    add_json_option(parser)
    parser.set_defaults(run_command=_runs)


def _runs(arguments: argparse.Namespace) -> int:
    records = read_records(arguments.folder)
    if arguments.json:
        listed = [{"folder": str(path), **report_schema.dump(record)} for path, record in records.items()]
        print(json.dumps(listed, indent=1))
        return 0
    if not records:
        print(f"no runs in {arguments.folder}")
    width = max((len(str(path)) for path in records), default=0)
    for path, record in records.items():
        started = record.started[:16].replace("T", " ")
        line = f"{path!s:{width}}  {started}  {record.pipeline}  {record.state}{_result(record)}"
        print(indented(line))
    return 0


def _result(record: RunRecord) -> str:
    if record.error:
        return f": {record.error}"
    pushed = f", pushed: {record.pushed}" if record.pushed else ", not pushed" if record.selected else ""
    return f": {record.selected}{pushed}" if record.selected else ""


def add_clean(subparsers: Subparsers) -> None:
    """Add ``tfopt clean``."""
    parser = subparsers.add_parser(
        "clean",
        help="remove old folders of runs",
        description="Remove the folders of runs except the newest of each pipeline. Only what a run has written is "
        f"removed ({', '.join(CONTENT)}). Pushed versions and other files remain, and so does a folder where a run "
        "is active. Without --yes nothing is removed.",
    )
    _add_folder(parser)
    parser.add_argument(
        "--keep", type=int, required=True, metavar="N", help="the number of folders of each pipeline that remain"
    )
    parser.add_argument("--yes", action="store_true", help="remove them (default: show what would be removed)")
    add_json_option(parser)
    parser.set_defaults(run_command=_clean)


def _clean(arguments: argparse.Namespace) -> int:
    if arguments.keep < 0:
        raise ComponentError(f"--keep {arguments.keep}", "a number from 0", "write for example --keep 3")
    results = []
    for path in old_runs(read_records(arguments.folder), arguments.keep):
        size = content_size(path)
        removed = arguments.yes and remove_run(path)
        state = "removed" if removed else "running" if arguments.yes else "would be removed"
        results.append({"folder": str(path), "state": state, "bytes": size})
        if not arguments.json:
            print(indented(f"{path}: {state}, {data_size(size)}"))
    if arguments.json:
        print(json.dumps(results, indent=1))
        return 0
    if not results:
        print("nothing to remove")
    elif not arguments.yes:
        print("nothing was removed; --yes removes these folders")
    return 0


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=FOLDER,
        help="the folder with the folders of runs (default: %(default)s)",
    )
