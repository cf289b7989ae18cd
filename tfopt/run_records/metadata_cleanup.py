"""Remove old executions from the SQLite file of ML Metadata, whose own interface cannot remove any."""

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tfopt.errors import ComponentError

SCHEMA = 10  # of the tables that are named here
NODE = "node"  # TFX's type of the context that has all executions of one step
COMPLETE, CACHED = 3, 5  # states of an execution whose outputs exist


@dataclass(frozen=True)
class OldExecutions:
    """Executions that newer ones of the same step replace."""

    ids: list[int]
    steps: dict[int, str]  # the step of each execution, old or not
    artifacts: list[int]  # numbers of those that no other execution has as input or output
    replaced: set[str]  # their paths and addresses
    used: set[str]  # paths and addresses of all other artifacts


def find_old_executions(file: Path, keep: int) -> OldExecutions:
    """Find the executions of each step that are neither among its last ones nor among its last successful ones.

    `keep` of each remain. The numbers of executions give their order; the machine's clock may be wrong.

    Raises:
        ComponentError: If the store has other tables.
    """
    with _connected(file) as database:
        return _find(database, file, keep)


def remove_old_executions(file: Path, keep: int) -> None:
    """Remove what `find_old_executions` finds, and what belongs to it only, in one transaction; then shrink the file.

    Raises:
        ComponentError: If the store has other tables. It is then unchanged.
    """
    with _connected(file) as database:
        with database:
            database.execute("BEGIN IMMEDIATE")
            old = _find(database, file, keep)
            if not old.ids:
                return
            _fill(database, "old_execution", old.ids)
            _fill(database, "old_artifact", old.artifacts)
            for statement in STATEMENTS:
                database.execute(statement)
        database.execute("VACUUM")


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


def _connected(file: Path) -> contextlib.closing[sqlite3.Connection]:
    """Open an existing file; after a killed run SQLite first removes what that left, so it must be writable."""
    address = f"file:{quote(str(file.absolute()))}?mode=rw"
    return contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None))


def _find(database: sqlite3.Connection, file: Path, keep: int) -> OldExecutions:
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
    return OldExecutions(sorted(old), steps, artifacts, replaced, used)


def _check_schema(database: sqlite3.Connection, file: Path) -> None:
    try:
        versions = [version for (version,) in database.execute("SELECT schema_version FROM MLMDEnv")]
    except sqlite3.DatabaseError as error:
        versions = [str(error)]
    if versions != [SCHEMA]:
        raise ComponentError(
            f"{file}: a metadata store with schema {', '.join(map(str, versions))}",
            f"schema {SCHEMA} of ML Metadata",
            "remove the folder of the run as a whole, or install the version of ml-metadata that tfopt names",
        )


def _fill(database: sqlite3.Connection, name: str, numbers: list[int]) -> None:
    database.execute(f"CREATE TEMP TABLE {name} (id INTEGER PRIMARY KEY)")
    database.executemany(f"INSERT INTO {name} VALUES (?)", [(number,) for number in numbers])
