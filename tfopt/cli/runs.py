"""The subcommands for the folders of runs: list them, open a report, compare two runs, and remove old ones."""

import argparse
import json
import os
import webbrowser
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from tfopt.cli.arguments import Subparsers, add_command, add_json_option
from tfopt.errors import ComponentError
from tfopt.formatting import amount, data_size, indented, visible
from tfopt.reports import report_schema
from tfopt.run_records.run_record import RunRecord, find_run, freed_bytes, old_runs, read_records
from tfopt.storage.owned_files import is_own
from tfopt.storage.run_folder import RECORD

FOLDER = Path("runs")


def add_runs(subparsers: Subparsers) -> None:
    """Add ``tfopt runs``."""
    summary = "list the folders of runs: date, pipeline, outcome, selected model"
    description = "List the folders of runs, the newest first, with the last run in each of them. Times are in UTC."
    parser = add_command(subparsers, "runs", _runs, summary, description)
    _add_folder(parser)
    add_json_option(parser)


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
        line = f"{path!s:{width}}  {started}  {record.pipeline}  {record.state}{_result(record)}{_cost(record)}"
        print(indented(line))
    return 0


def _result(record: RunRecord) -> str:
    if record.error:
        return f": {record.error}"
    pushed = f", pushed: {record.pushed}" if record.pushed else ", not pushed" if record.selected else ""
    pushed += f", a canary with {record.canary}% of the requests" if record.canary else ""
    return f": {record.selected}{pushed}" if record.selected else ""


def _cost(record: RunRecord) -> str:
    return f"; cost {amount('cost', record.cost.total)}" if record.cost else ""


def add_open(subparsers: Subparsers) -> None:
    """Add ``tfopt open``."""
    summary = "open the report of a run in the browser"
    description = (
        "Open the report of a run, which explains the decision, in the browser. Without a display its path is printed."
    )
    parser = add_command(subparsers, "open", _open, summary, description)
    text = f"the folder of a run, or its name in {FOLDER} (default: the newest one)"
    parser.add_argument("run", nargs="?", metavar="RUN", help=text)
    parser.add_argument("--print", action="store_true", help="print the path of the report only")


def _open(arguments: argparse.Namespace) -> int:
    root, record = find_run(arguments.run, FOLDER) if arguments.run else _newest_with_report()
    if not record.report:
        received = f"{root}: no report ({record.pipeline}: {record.state})"
        fix = "run a pipeline with select_model, such as retrain; tfopt runs lists the runs"
        raise ComponentError(received, "a run that has selected a model", fix)
    page = (root / record.report).absolute()
    if not page.is_file():
        raise ComponentError(f"{page}: no such file", "the report of the run", "run the pipeline again")
    has_display = any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
    if arguments.print or not has_display or not webbrowser.open(page.as_uri()):
        print(visible(str(page)))
    return 0


def _newest_with_report() -> tuple[Path, RunRecord]:
    for root, record in read_records(FOLDER).items():
        if record.report:
            return root, record
    raise ComponentError(f"no run with a report in {FOLDER}", "a run that has selected a model", "pass its folder")


def add_diff(subparsers: Subparsers) -> None:
    """Add ``tfopt diff``."""
    summary = "compare two runs: values, inputs, code, packages, decisions and metrics of each model"
    description = (
        "Compare two runs, each the last one in its folder: values, inputs, code of the steps, versions of the "
        "packages that it imports, decision, and metrics of each model. Only differences are shown."
    )
    parser = add_command(subparsers, "diff", _diff, summary, description)
    for name, which in (("first", "the first run"), ("second", "the second one")):
        parser.add_argument(name, metavar="RUN", help=f"{which}: its folder, or its name in {FOLDER}")
    add_json_option(parser)


def _diff(arguments: argparse.Namespace) -> int:
    from tfopt.cli.run_diff import compare_runs, print_differences  # imports rich, which the other commands do not need

    runs = find_run(arguments.first, FOLDER), find_run(arguments.second, FOLDER)
    differences = compare_runs(*runs)
    if arguments.json:
        listed = [asdict(difference) for difference in differences]
        print(json.dumps({"runs": [str(path) for path, _ in runs], "differences": listed}, indent=1))
        return 0
    for path, record in runs:
        if not record.engine:
            print(indented(f"{path}: an earlier version of tfopt recorded no values, inputs, code and packages"))
    if differences:
        print_differences(differences, [str(path) for path, _ in runs])
    else:
        print("no differences")
    return 0


def add_clean(subparsers: Subparsers) -> None:
    """Add ``tfopt clean``."""
    summary = "remove old folders of runs, and old results in the others"
    description = (
        "Remove the folders of runs except the newest of each pipeline, and in these the results of all but the last "
        "executions of each step, from the folder and from its metadata store. Only what a record of the folder names "
        "is removed, and only below it: links are not followed. Pushed versions and other files remain, and so does a "
        "folder that is a link, that another user's run wrote, or where a run is active. Without --yes nothing is "
        "removed, and the paths are listed."
    )
    parser = add_command(subparsers, "clean", _clean, summary, description)
    _add_folder(parser)
    text = "the number of folders of each pipeline, and of executions of each step, that remain"
    parser.add_argument("--keep", type=int, required=True, metavar="N", help=text)
    parser.add_argument("--yes", action="store_true", help="remove them (default: show what would be removed)")
    add_json_option(parser)


def _clean(arguments: argparse.Namespace) -> int:
    if arguments.keep < 0:
        raise ComponentError(f"--keep {arguments.keep}", "a number from 0", "write for example --keep 3")
    results = list(_cleaned(arguments.folder, arguments.keep, arguments.yes))
    if arguments.json:
        print(json.dumps(results, indent=1))
        return 0
    for result in results:
        count = result.get("executions")
        what = "" if count is None else f"{count} old executions " if count else "outputs of killed runs "
        print(indented(f"{result['folder']}: {what}{result['state']}, {data_size(result['bytes'])}"))
        for path in () if arguments.yes else result["paths"]:
            print(indented(f"  {path}"))
    if not results:
        print("nothing to remove")
    elif not arguments.yes:
        print("nothing was removed; --yes removes it")
    return 0


class _Cleaned(TypedDict, total=False):
    folder: str
    state: str
    bytes: int
    executions: int
    paths: list[str]


def _cleaned(folder: Path, keep: int, remove: bool) -> Iterator[_Cleaned]:
    """Yield the facts of each old folder and each folder with old results, after they were removed if `remove`.

    The error of a folder that cannot be cleaned is raised after the others were.
    """
    records = {path: record for path, record in read_records(folder).items() if is_own(path) and is_own(path / RECORD)}
    old_folders = old_runs(records, keep)
    errors = []
    for path in [*old_folders, *(path for path in records if path not in old_folders)]:
        if records[path].state != "running":
            try:
                yield from _cleaned_folder(path, keep, path in old_folders, remove)
            except ComponentError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _cleaned_folder(path: Path, keep: int, is_old: bool, remove: bool) -> Iterator[_Cleaned]:
    from tfopt.run_records import cleanup  # imports SQLite

    if is_old:
        files = cleanup.find_run_files(path)
        size, paths = freed_bytes(files), _relative(files, path)
        state = _removal(remove and cleanup.remove_run(path), remove)
        yield {"folder": str(path), "state": state, "bytes": size, "paths": paths}
        return
    old = cleanup.find_old_results(path, keep)
    if old.executions or old.outputs:
        state = _removal(remove and cleanup.remove_old_results(path, keep), remove)
        facts: _Cleaned = {"folder": str(path), "state": state, "bytes": old.bytes, "executions": old.executions}
        yield {**facts, "paths": _relative([*old.outputs, *old.records], path)}


def _relative(files: Iterable[Path], folder: Path) -> list[str]:
    return [str(file.relative_to(folder.absolute())) for file in files]


def _removal(removed: bool, remove: bool) -> str:
    return "removed" if removed else "running" if remove else "would be removed"


def _add_folder(parser: argparse.ArgumentParser) -> None:
    text = "the folder with the folders of runs (default: %(default)s)"
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help=text)
