"""The record of the last run in a run's folder, ``run.json``: pipeline, values, code, times, outcome, decision."""

import contextlib
import json
import logging
import os
import platform
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import tfopt
from tfopt.artifacts import Artifact, Decision, Pushed
from tfopt.dag.dag import Dag, PipelineInput
from tfopt.dag.outcome import Outcome
from tfopt.dag.run_events import RunEnded, RunStarted, publish
from tfopt.error_messages import first_line, nearest
from tfopt.errors import ComponentError
from tfopt.execution import code_digest
from tfopt.execution.code_digest import Code
from tfopt.reports import report_schema
from tfopt.run_records.run_cost import RunCost
from tfopt.storage import staging
from tfopt.storage.folder_lock import lock_if_free
from tfopt.storage.run_folder import RECORD
from tfopt.value_types import JsonObject

log = logging.getLogger(__name__)
State = Literal["running", "succeeded", "failed", "interrupted"]


@dataclass
class RunRecord:
    """The last run in a folder."""

    schema_version: ClassVar[int] = 1
    pipeline: str
    state: State  # ``running`` until the run ends; a killed run leaves it so
    started: str  # time in UTC
    host: str
    process: int
    version: str
    ended: str | None = None  # time in UTC
    error: str | None = None
    selected: str | None = None
    pushed: str | None = None  # folder or address of the pushed version
    canary: int | None = None  # percent of the requests that it is for, if it is a canary
    report: str | None = None  # its path, relative to the run's folder if it is in it
    engine: str = ""  # empty, as the fields below, in records of earlier versions
    sources: dict[str, str | None] = field(default_factory=dict)
    parameters: JsonObject = field(default_factory=dict)
    # Of a run that succeeded. Digests of sources are comparable between runs of one engine.
    inputs: dict[str, str | None] = field(default_factory=dict)  # digest of each source
    code: dict[str, str] = field(default_factory=dict)  # digest of the source files of each step's component
    python: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    id: str = ""  # UUID
    cost: RunCost | None = None  # of a run that succeeded; None without a price


@contextlib.contextmanager
def recorded_run(root: Path, pipeline: str, **facts: Any) -> Iterator[RunRecord]:
    """Record and report a run, at its start and at its end; the block sets what is known when it succeeded."""
    facts |= {"id": str(uuid.uuid4())}
    started = RunRecord(pipeline, "running", _now(), platform.node(), os.getpid(), tfopt.__version__, **facts)
    _write(root, started)
    publish(RunStarted(started.id, pipeline, started.engine))
    record = replace(started, inputs={})  # another dict, which the block fills
    try:
        yield record
    except BaseException as error:
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        text = first_line(error).removeprefix("received: ")  # of a ComponentError
        _write(root, replace(started, state=state, ended=_now(), error=text))
        publish(RunEnded(error))
        raise
    _write(root, replace(record, state="succeeded", ended=_now()))
    publish(RunEnded(selected=record.selected, pushed=record.pushed))


def add_inputs(record: RunRecord, dag: Dag, values: Mapping[str, Any], outcomes: Mapping[str, Outcome]) -> None:
    """Set the fields about inputs and code of a run, without which its results cannot be explained."""
    code: dict[str, Code] = {}
    for step in dag.steps.values():
        code[step.id] = code_digest.describe(step.component, step.component.check(step.resolve(values)))
        for name, wire in step.inputs.items():
            if isinstance(wire, PipelineInput) and name in outcomes[step.id].inputs:
                (record.inputs[wire.name],) = outcomes[step.id].inputs[name]
    record.code = {step: part.sources for step, part in code.items()}
    record.python = platform.python_version()
    record.packages = dict(sorted({item for part in code.values() for item in part.packages.items()}))


def add_decision(record: RunRecord, root: Path, artifacts: Sequence[Artifact]) -> None:
    """Set the fields about the selected model and the pushed version."""
    for artifact in artifacts:
        if isinstance(artifact, Decision):
            page = artifact.path / Decision.page
            path = page.relative_to(root) if page.is_relative_to(root) else page
            record.selected, record.report = artifact.load().selected, str(path)
        if isinstance(artifact, Pushed):
            report = artifact.load()
            record.pushed, record.canary = report.path, report.canary


def find_run(name: str, folder: Path) -> tuple[Path, RunRecord]:
    """Return folder and record of a run by its path, or its name in a folder; raise ComponentError without one."""
    for path in (Path(name), folder / name):
        if (path / RECORD).is_file():
            return path, _read(path)
    names = [path.name for path in read_records(folder)] if folder.is_dir() else []
    expected = f"the folder of a run, or its name in {folder}"
    raise ComponentError(f"{name}: no run", expected, f"{nearest(name, names)} (tfopt runs)")


def read_records(folder: Path) -> dict[Path, RunRecord]:
    """Read the records of a folder and of the folders in it, the newest first; those that cannot be read are logged.

    Raises:
        ComponentError: If the folder does not exist.
    """
    if not folder.is_dir():
        raise ComponentError(f"{folder}: no such folder", "a folder with the folders of runs", "check the path")
    records: dict[Path, RunRecord] = {}
    for file in (folder / RECORD, *folder.glob(f"*/{RECORD}")):
        try:
            if file.is_file():
                read = _read(file.parent)
                records[file.parent] = replace(read, state=_state(file.parent, read))
        except (ComponentError, OSError) as error:
            log.warning("not a record of a run, left out: %s", getattr(error, "received", error))
    return dict(sorted(records.items(), key=lambda item: item[1].started, reverse=True))


def old_runs(records: Mapping[Path, RunRecord], keep: int) -> list[Path]:
    """Return the folders that `remove_run` may remove: all but the newest of each pipeline, and running ones.

    `keep` folders of each pipeline remain. The records are the newest first.
    """
    counts: dict[str, int] = {}
    old = []
    for path, record in records.items():
        counts[record.pipeline] = counts.get(record.pipeline, 0) + 1
        if counts[record.pipeline] > keep and record.state != "running":
            old.append(path)
    return old


def freed_bytes(paths: Iterable[Path]) -> int:
    """Return what removing files and folders frees; a file with other links frees nothing."""
    links: dict[tuple[int, int], int] = {}
    freed = 0
    for path in paths:
        for file in (path, *(() if path.is_symlink() else path.rglob("*"))):
            with contextlib.suppress(FileNotFoundError):
                status = file.lstat()
                key = status.st_dev, status.st_ino
                links[key] = links.get(key, 0) + 1
                if file.is_file() and links[key] == status.st_nlink:
                    freed += status.st_size
    return freed


def _state(root: Path, record: RunRecord) -> State:
    """Return the state of a run now: the record of a killed run still says that it is running."""
    with lock_if_free(root) as is_idle:
        if not is_idle:
            return "running"
    if record.state == "running" and record.host == platform.node() and not Path(f"/proc/{record.process}").exists():
        return "interrupted"
    return record.state


def _read(root: Path) -> RunRecord:
    return report_schema.load(RunRecord, root / RECORD)


def _write(root: Path, record: RunRecord) -> None:
    staging.replace_file(root / RECORD, json.dumps(report_schema.dump(record), indent=1).encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
