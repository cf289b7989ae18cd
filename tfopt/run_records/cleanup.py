"""Find and remove what the runs of a folder wrote: results that newer executions replace, or all of it.

Only what a record of the folder names is removed: a record of the engine without TFX, or TFX's metadata. Links are not
followed, and records of other users count for nothing.
"""

import contextlib
import glob
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from tfopt.errors import ComponentError
from tfopt.process_engine.result_cache import KEY, find_old_records, find_unfinished, output_paths
from tfopt.run_records.run_record import freed_bytes
from tfopt.storage.folder_lock import lock_if_free
from tfopt.storage.owned_files import is_below, is_own, remove_below
from tfopt.storage.run_folder import METADATA, OUTBOX, RECORD, SOURCES, remove_leftovers

JOURNALS = ("-journal", "-wal", "-shm")  # which SQLite writes next to its file
LOGS = ("run.log", "run.log.1")
SCHEMA = 10  # of ML Metadata's tables that are named here; its own interface cannot remove any executions
NODE = "node"  # TFX's type of the context that has all executions of one step
COMPLETE, CACHED = 3, 5  # states of an execution whose outputs exist
STATEMENTS = (
    "DELETE FROM EventPath WHERE event_id IN "
    "(SELECT id FROM Event WHERE execution_id IN old_execution OR artifact_id IN old_artifact)",
    "DELETE FROM Event WHERE execution_id IN old_execution OR artifact_id IN old_artifact",
    # The contexts of old runs, and of results that are cached no more. Those of steps have other executions.
    "CREATE TEMP TABLE old_context AS SELECT DISTINCT context_id AS id FROM Association "
    "WHERE execution_id IN old_execution "
    "AND context_id NOT IN (SELECT context_id FROM Association WHERE execution_id NOT IN old_execution) "
    "AND context_id NOT IN (SELECT parent_context_id FROM ParentContext)",
    "DELETE FROM Association WHERE execution_id IN old_execution",
    "DELETE FROM Attribution WHERE artifact_id IN old_artifact OR context_id IN old_context",
    "DELETE FROM ParentContext WHERE context_id IN old_context",
    "DELETE FROM ContextProperty WHERE context_id IN old_context",
    "DELETE FROM Context WHERE id IN old_context",
    "DELETE FROM ExecutionProperty WHERE execution_id IN old_execution",
    "DELETE FROM Execution WHERE id IN old_execution",
    "DELETE FROM ArtifactProperty WHERE artifact_id IN old_artifact",
    "DELETE FROM Artifact WHERE id IN old_artifact",
)


@dataclass(frozen=True)
class OldResults:
    """Results of earlier runs in a folder."""

    records: list[Path]  # with those of killed executions
    executions: int  # their number, without killed ones
    outputs: list[Path]  # that only these executions have, those of killed ones, and folders in which TFX executed them
    bytes: int  # what removing the outputs frees; a file with other links frees nothing
    steps: set[str] = field(default_factory=set)  # names of all steps that have a record


def find_old_results(root: Path, keep: int) -> OldResults:
    """Find the results of a run's folder that neither the last executions of their step nor later steps use.

    `keep` executions of each step remain; a run that reuses a result counts as one.

    Raises:
        ComponentError: If the metadata store cannot be read.
    """
    root = root.absolute()
    records, remaining = find_old_records(root, keep)
    unfinished = find_unfinished(root)
    steps = {record.parent.name for record in (*records, *remaining, *unfinished)}
    used = {_place(path) for record in remaining for path in output_paths(root, record)}
    named = {path for record in (*records, *unfinished) for path in output_paths(root, record)}
    executions = len(records)
    if is_own(root / METADATA):
        with _connected(root / METADATA) as database:
            stored = _find_old_executions(database, root / METADATA, keep)
        steps |= set(stored.steps.values())
        executions += len(stored.ids)
        used |= {_place(Path(uri)) for uri in stored.used}
        uris = (Path(uri) for uri in stored.replaced)
        named |= {root.joinpath(*uri.parts[-4:]) for uri in uris if uri.parts[-4:-3] == ("artifacts",)}
        for number, step in stored.steps.items():  # a killed execution is in the store, its outputs are not
            paths = root.glob(f"artifacts/{glob.escape(step)}/*/{number}")
            named |= {path for path in paths if not path.parent.name.startswith(".")}
        for number in stored.ids:
            named |= set(root.glob(f"artifacts/{glob.escape(stored.steps[number])}/.system/*/{number}"))
    outputs = sorted(path for path in named if _place(path) not in used and is_below(root, path))
    return OldResults([*records, *unfinished], executions, outputs, freed_bytes(outputs), steps)


def remove_old_results(root: Path, keep: int) -> bool:
    """Remove what `find_old_results` finds; return False, and remove nothing, if a run is active there.

    Records are removed after outputs, so that after a kill the next call finds the rest by them. A result without its
    outputs is not reused.
    """
    with lock_if_free(root) as is_idle:
        if is_idle:
            _remove_results(root.absolute(), keep)
    return is_idle


def find_run_files(root: Path) -> list[Path]:
    """Find all that the runs of a folder wrote: results, metadata, logs, models, data, outbox, and last the record."""
    root = root.absolute()
    old = find_old_results(root, 0)
    sources = [path for path in root.glob(f"{SOURCES}/*") if KEY.fullmatch(path.name)]
    files = [root / name for name in (METADATA, *(METADATA + suffix for suffix in JOURNALS), *LOGS, OUTBOX, RECORD)]
    return [*old.outputs, *old.records, *(path for path in (*sources, *files) if is_own(path) and is_below(root, path))]


def remove_run(root: Path) -> bool:
    """Remove what `find_run_files` finds, and the folders that are then empty.

    Returns:
        False if another process has started a run there, which prevents the removal.
    """
    root = root.absolute()
    with lock_if_free(root) as is_idle:
        if not is_idle:
            return False
        remove_leftovers(root)
        files = find_run_files(root)
        steps = _remove_results(root, 0).steps
        for path in files:
            remove_below(root, path)
        outputs = [root / "artifacts" / step for step in sorted(steps)]
        names = [path for output in outputs for pattern in (".system/*", "*") for path in output.glob(pattern)]
        names += [*outputs, *(root / "executions" / step for step in steps)]
        _remove_empty(path for path in names if is_below(root, path))
        _remove_empty((root / "artifacts", root / "executions", root / SOURCES, (root / OUTBOX).parent, root))
    return True


def _remove_results(root: Path, keep: int) -> OldResults:
    old = find_old_results(root, keep)
    for path in old.outputs:
        remove_below(root, path)
    if is_own(root / METADATA):
        _remove_old_executions(root / METADATA, keep)
    for record in old.records:
        remove_below(root, record)
    return old


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove the folders that are empty; links remain."""
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
            folder.rmdir()


def _place(output: Path) -> tuple[str, ...]:
    """Return step, output and name: TFX stores whole paths, and a folder may have been moved."""
    return output.parts[-3:]


@dataclass(frozen=True)
class _OldExecutions:
    """Executions that newer ones of the same step replace."""

    ids: list[int]
    steps: dict[int, str]  # the step of each execution, old or not
    artifacts: list[int]  # numbers of those that no other execution has as input or output
    replaced: set[str]  # their paths and addresses
    used: set[str]  # paths and addresses of all other artifacts


def _remove_old_executions(file: Path, keep: int) -> None:
    """Remove old executions, and what belongs to them only, in one transaction; then shrink the file."""
    with _connected(file) as database:
        with database:
            database.execute("BEGIN IMMEDIATE")
            old = _find_old_executions(database, file, keep)
            if not old.ids:
                return
            _fill(database, "old_execution", old.ids)
            _fill(database, "old_artifact", old.artifacts)
            for statement in STATEMENTS:
                database.execute(statement)
        database.execute("VACUUM")


def _connected(file: Path) -> contextlib.closing[sqlite3.Connection]:
    """Open an existing file; after a killed run SQLite first removes what that left, so it must be writable."""
    address = f"file:{quote(str(file.absolute()))}?mode=rw"
    return contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None))


def _find_old_executions(database: sqlite3.Connection, file: Path, keep: int) -> _OldExecutions:
    """Find the executions of each step that are neither among its last ones nor among its last successful ones.

    `keep` of each remain. The numbers of executions give their order; the machine's clock may be wrong.
    """
    _check_schema(database, file)
    rows = database.execute(
        "SELECT Context.name, Execution.id, Execution.last_known_state FROM Execution "
        "JOIN Association ON Association.execution_id = Execution.id "
        "JOIN Context ON Context.id = Association.context_id "
        "JOIN Type ON Type.id = Context.type_id WHERE Type.name = ? ORDER BY Execution.id DESC",
        (NODE,),
    )
    executions: dict[str, list[tuple[int, bool]]] = {}
    steps = {}
    for node, number, state in rows:  # a node is PIPELINE.STEP
        executions.setdefault(node, []).append((number, state in (COMPLETE, CACHED)))
        steps[number] = node.partition(".")[2]
    old = []
    for listed in executions.values():
        successful = [number for number, succeeded in listed if succeeded]
        last = {*[number for number, _ in listed[:keep]], *successful[:keep]}
        old += [number for number, _ in listed if number not in last]
    _fill(database, "found_execution", old)
    uris = dict(database.execute("SELECT id, uri FROM Artifact"))
    of_old = "SELECT artifact_id FROM Event WHERE execution_id IN found_execution"
    of_others = "SELECT artifact_id FROM Event WHERE execution_id NOT IN found_execution"
    artifacts = [number for (number,) in database.execute(f"{of_old} EXCEPT {of_others}")]
    replaced = {uris[number] for number in artifacts}
    used = {uri for number, uri in uris.items() if number not in set(artifacts)}
    return _OldExecutions(sorted(old), steps, artifacts, replaced, used)


def _check_schema(database: sqlite3.Connection, file: Path) -> None:
    try:
        versions = [version for (version,) in database.execute("SELECT schema_version FROM MLMDEnv")]
    except sqlite3.DatabaseError as error:
        versions = [str(error)]
    if versions != [SCHEMA]:
        received = f"{file}: a metadata store with schema {', '.join(map(str, versions))}"
        fix = "remove the folder of the run as a whole, or install the version of ml-metadata that tfopt names"
        raise ComponentError(received, f"schema {SCHEMA} of ML Metadata", fix)


def _fill(database: sqlite3.Connection, name: str, numbers: list[int]) -> None:
    database.execute(f"CREATE TEMP TABLE {name} (id INTEGER PRIMARY KEY)")
    database.executemany(f"INSERT INTO {name} VALUES (?)", [(number,) for number in numbers])
