"""The record of the last run in a run's folder, ``run.json``: pipeline, times, outcome and the selected model."""

import contextlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import tfopt
from tfopt.artifacts import Artifact, Decision, Pushed, report_schema, staging
from tfopt.artifacts.folder_lock import lock_folder
from tfopt.artifacts.run_folder import CONTENT, RECORD
from tfopt.errors import ComponentError, first_line

State = Literal["running", "succeeded", "failed", "interrupted"]


@dataclass(frozen=True)
class RunRecord:
    """The last run in a folder.

    Attributes:
        pipeline: Name of the pipeline.
        state: ``running`` until the run ends; a killed run leaves it so.
        started: Time in UTC.
        host: Name of the machine.
        process: Number of the process.
        version: Version of tfopt.
        ended: Time in UTC; None while it runs.
        error: What a failed run received.
        selected: Name of the selected model.
        pushed: Folder or address of the pushed version.
        report: Path of the report, relative to the run's folder if it is in it.
    """

    schema_version: ClassVar[int] = 1
    pipeline: str
    state: State
    started: str
    host: str
    process: int
    version: str
    ended: str | None = None
    error: str | None = None
    selected: str | None = None
    pushed: str | None = None
    report: str | None = None


class _BusyError(Exception):
    """Another process holds the lock of a folder."""


@contextlib.contextmanager
def recorded_run(root: Path, pipeline: str) -> Iterator[list[Artifact]]:
    """Record a run, at its start and at its end; the block adds the artifacts of the run to the list.

    Args:
        root: The run's folder, which exists.
        pipeline: Name of the pipeline.
    """
    record = RunRecord(pipeline, "running", _now(), platform.node(), os.getpid(), tfopt.__version__)
    _write(root, record)
    artifacts: list[Artifact] = []
    try:
        yield artifacts
    except ComponentError as error:
        _write(root, replace(record, state="failed", ended=_now(), error=first_line(error).removeprefix("received: ")))
        raise
    except BaseException as error:
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        _write(root, replace(record, state=state, ended=_now(), error=first_line(error)))
        raise
    _write(root, replace(record, state="succeeded", ended=_now(), **_results(root, artifacts)))


def read_records(folder: Path) -> dict[Path, RunRecord]:
    """Read the records of a folder and of the folders in it, the newest first.

    Raises:
        ComponentError: If the folder does not exist, or a record cannot be read.
    """
    if not folder.is_dir():
        raise ComponentError(f"{folder}: no such folder", "a folder with the folders of runs", "check the path")
    folders = [path.parent for path in (folder / RECORD, *folder.glob(f"*/{RECORD}")) if path.is_file()]
    records = {
        path: replace(read, state=_state(path, read)) for path, read in ((path, _read(path)) for path in folders)
    }
    return dict(sorted(records.items(), key=lambda item: item[1].started, reverse=True))


def old_runs(records: Mapping[Path, RunRecord], keep: int) -> list[Path]:
    """Return the folders that `remove_run` may remove: all but the newest of each pipeline, and running ones.

    Args:
        records: From `read_records`, the newest first.
        keep: Number of folders of each pipeline that remain.
    """
    counts: dict[str, int] = {}
    old = []
    for path, record in records.items():
        counts[record.pipeline] = counts.get(record.pipeline, 0) + 1
        if counts[record.pipeline] > keep and record.state != "running":
            old.append(path)
    return old


def remove_run(root: Path) -> bool:
    """Remove what a run has written into its folder, and the folder if nothing else is in it.

    Returns:
        False if another process has started a run there, which prevents the removal.
    """
    with contextlib.suppress(_BusyError), lock_folder(root, _refuse):
        for name in CONTENT:
            for path in root.glob(f"{name}*" if name.endswith(".sqlite") else name):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        staging.remove_abandoned(root)
        if not any(root.iterdir()):
            root.rmdir()
        return True
    return False


def content_size(root: Path) -> int:
    """Return the bytes of what `remove_run` removes; files with several links count once."""
    sizes = {}
    for name in CONTENT:
        for path in (root / name, *(root / name).rglob("*")):
            if path.is_file() and not path.is_symlink():
                status = path.stat()
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def _state(root: Path, record: RunRecord) -> State:
    """Return the state of a run now: the record of a killed run still says that it is running."""
    try:
        with lock_folder(root, _refuse):
            pass
    except _BusyError:
        return "running"
    if record.state == "running" and record.host == platform.node() and not Path(f"/proc/{record.process}").exists():
        return "interrupted"
    return record.state


def _refuse() -> None:
    raise _BusyError


def _results(root: Path, artifacts: Sequence[Artifact]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for artifact in artifacts:
        if isinstance(artifact, Decision):
            page = artifact.path / Decision.page
            path = page.relative_to(root) if page.is_relative_to(root) else page
            results |= {"selected": artifact.load().selected, "report": str(path)}
        if isinstance(artifact, Pushed):
            results["pushed"] = artifact.load().path
    return results


def _read(root: Path) -> RunRecord:
    return report_schema.load(RunRecord, root / RECORD)


def _write(root: Path, record: RunRecord) -> None:
    partial = staging.new_path(root)
    partial.write_text(json.dumps(report_schema.dump(record), indent=1))
    partial.rename(root / RECORD)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
