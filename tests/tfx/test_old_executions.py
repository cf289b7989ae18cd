"""Test `tfopt clean` in a folder with TFX's metadata: what leaves the store, and that runs go on with the rest."""

import json
import sqlite3
from pathlib import Path

import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx.orchestration import metadata

from tests import toys
from tfopt.artifacts import Files, Report
from tfopt.cli.main import main
from tfopt.component import Input
from tfopt.dag.outcome import Outcome
from tfopt.dag.tracing import trace
from tfopt.errors import ComponentError
from tfopt.tfx import runner

RECORD = {"schema_version": 1, "pipeline": "counting", "state": "succeeded", "started": "2026-01-02T03:04:05+00:00"}
RECORD |= {"host": "here", "process": 1, "version": "0"}


def counting(steps, data: Input[Files], *, limit: int = 1000) -> None:
    """Count, and add."""
    counted = steps(toys.count, data=data, limit=limit)
    steps(toys.add, reports=[counted.outputs["report"]])


class Folder:
    """A run's folder, and runs in it."""

    def __init__(self, path: Path) -> None:
        self.root, self.data = path / "runs" / "r", path / "data.txt"
        self.root.mkdir(parents=True)
        self.data.write_text("one\ntwo\n")
        (self.root / "run.json").write_text(json.dumps(RECORD))

    def run(self, limit: int) -> dict[str, Outcome]:
        return runner.run(trace(counting), {"data": self.data, "limit": limit}, self.root, engine="local")

    def clean(self, keep: int) -> None:
        assert main(["clean", str(self.root.parent), "--keep", str(keep), "--yes"]) == 0

    def executions(self) -> dict[str, int]:
        """Return the number of executions of each node, after a check that the store is whole."""
        config = metadata.sqlite_metadata_connection_config(str(self.root / "metadata.sqlite"))
        with metadata.Metadata(config) as handle:
            store = handle.store
            executions = store.get_executions()
            events = store.get_events_by_execution_ids([execution.id for execution in executions])
            artifacts = {artifact.id: artifact for artifact in store.get_artifacts()}
            assert artifacts.keys() == {event.artifact_id for event in events}
            assert all(Path(artifact.uri).exists() for artifact in artifacts.values())
            outputs = {artifacts[event.artifact_id].uri for event in events if event.type == mlmd.Event.OUTPUT}
            stored = {str(path) for path in self.root.glob("artifacts/*/*/*") if ".system" not in path.parts}
            assert stored == outputs - {str(self.data)}
            folders = {int(path.name) for path in self.root.glob("artifacts/*/.system/executor_execution/*")}
            assert folders <= {execution.id for execution in executions}
            nodes = [context for context in store.get_contexts() if store.get_context_types_by_id([context.type_id])]
            names = {context.id: context.name for context in nodes}
            node = store.get_context_type("node").id
            return {
                names[context.id].removeprefix("counting."): len(store.get_executions_by_context(context.id))
                for context in nodes
                if context.type_id == node
            }

    def rows(self) -> dict[str, int]:
        """Return the number of rows of each table."""
        database = sqlite3.connect(self.root / "metadata.sqlite")
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: database.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def refuse(report: Report, content: object) -> None:
    raise ComponentError("refused", "another day", "wait")


def reused(outcomes: dict[str, Outcome]) -> list[str]:
    return [step for step, outcome in outcomes.items() if outcome.reused]


def test_the_last_executions_of_each_step_remain_and_are_reused(folder):
    for limit in (1, 2, 3, 1):  # the last run reuses the first result
        folder.run(limit)
    assert folder.executions() == {"count": 4, "add": 4, "data": 4}
    folder.clean(2)
    assert folder.executions() == {"count": 2, "add": 2, "data": 2}
    assert folder.data.is_file()
    for limit, expected in ((1, ["count", "add"]), (3, ["count", "add"]), (2, [])):
        assert reused(folder.run(limit)) == expected
        folder.executions()


def test_the_store_does_not_grow_from_run_to_run(folder):
    sizes, rows = [], []
    for limit in range(1, 6):
        folder.run(limit)
        folder.clean(2)
        sizes.append((folder.root / "metadata.sqlite").stat().st_size)
        rows.append(folder.rows())
    assert rows[-1] == rows[-2] == rows[-3]
    assert sizes[-1] == sizes[-2]


def test_failed_runs_do_not_push_out_the_last_good_result(folder, monkeypatch):
    folder.run(1)
    with monkeypatch.context() as broken:
        broken.setattr(Report, "write", refuse)
        for limit in (2, 3):
            with pytest.raises(ComponentError, match="refused"):
                folder.run(limit)
    assert folder.executions()["count"] == 3
    folder.clean(1)
    assert folder.executions()["count"] == 2  # the last failed one, and the last good one
    assert reused(folder.run(1)) == ["count", "add"]


def test_outputs_in_a_moved_folder_are_in_use(folder):
    for limit in (1, 2, 3):
        folder.run(limit)
    folder.root = folder.root.rename(folder.root.with_name("moved"))
    folder.clean(2)
    assert len(list(folder.root.glob("artifacts/*/*/[0-9]*"))) == 4
    folder.clean(1)
    assert len(list(folder.root.glob("artifacts/*/*/[0-9]*"))) == 2


def test_a_store_with_another_schema_is_refused_and_unchanged(folder, capsys):
    for limit in (1, 2):
        folder.run(limit)
    database = sqlite3.connect(folder.root / "metadata.sqlite")
    with database:
        database.execute("UPDATE MLMDEnv SET schema_version = 99")
    database.close()
    before = folder.rows()
    capsys.readouterr()
    assert main(["clean", str(folder.root.parent), "--keep", "1", "--yes"]) == 1
    assert "a metadata store with schema 99" in capsys.readouterr().err
    assert folder.rows() == before
    assert len(list(folder.root.glob("artifacts/count/report/*"))) == 2
