"""Test `tfopt runs` and `tfopt clean`: records of runs, killed runs, what is removed and what is not."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tfopt.artifacts import Decision, Pushed
from tfopt.cli.main import main
from tfopt.run_records import cleanup
from tfopt.run_records.run_record import add_decision, recorded_run
from tfopt.storage.folder_lock import lock_folder
from tfopt.storage.run_folder import METADATA, RECORD, SOURCES

COUNT = '''
from tests.toys import count, fail
from tfopt import Input, Steps
from tfopt.artifacts import Files
from tfopt.trace import Inherited


def NAME(steps: Steps, data: Input[Files], *, VALUES) -> None:
    """Count."""
    steps(COMPONENT, data=data, PASSED)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """The working directory, with two pipelines and data."""
    for name, component, parameter in (("counting", "count", "unit"), ("failing", "fail", "how")):
        text = COUNT.replace("NAME", name).replace("COMPONENT", component)
        text = text.replace("VALUES", f"{parameter}: Inherited").replace("PASSED", f"{parameter}={parameter}")
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "data.txt").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(pipeline: str, root: str, *words: str) -> int:
    engine = ["--engine", "process", "--root", f"runs/{root}"]
    return main(["run", f"{pipeline}.py", "--set", "data=data.txt", *engine, *words])


def records(capsys) -> dict[str, dict]:
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    return {entry.pop("folder"): entry for entry in json.loads(capsys.readouterr().out)}


def backdate(root: str, year: int) -> None:
    file = Path("runs", root, "run.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"started": f"{year}-01-02T03:04:05+00:00"}))


def test_a_run_prints_where_its_results_are(folder, capsys):
    text = (folder / "counting.py").read_text().replace("import count, fail", "import add, count")
    counted = text.replace("    steps(", "    first = steps(")
    (folder / "counting.py").write_text(f"{counted}    steps(add, reports=[first.outputs['report']])\n")
    assert run("counting", "a") == 0
    result, root = capsys.readouterr().out.splitlines()[-2:]
    assert root == f"all results: {folder / 'runs' / 'a'}"
    path, _, name = result.removeprefix("result: ").partition(" (")
    assert name == "total of add)"  # and not that of the step before
    assert (Path(path) / "report.json").is_file()


def test_runs_are_listed_with_date_pipeline_and_outcome(folder, capsys):
    assert run("counting", "a") == 0
    assert run("failing", "b") == 1
    backdate("a", 2020)
    backdate("b", 2021)
    listed = records(capsys)
    assert list(listed) == ["runs/b", "runs/a"]  # the newest first
    assert (listed["runs/a"]["pipeline"], listed["runs/a"]["state"]) == ("counting", "succeeded")
    assert listed["runs/a"]["ended"] and "error" not in listed["runs/a"]
    assert (listed["runs/b"]["state"], listed["runs/b"]["error"]) == ("failed", str(folder / "data.txt"))
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"runs/b  2021-01-02 03:04  failing  failed: {folder / 'data.txt'}"
    assert lines[1] == "runs/a  2020-01-02 03:04  counting  succeeded"
    assert run("failing", "b", "--set", "how=crash") == 1  # the last run in the folder counts
    assert records(capsys)["runs/b"]["error"] == "a bug"


def test_the_selected_model_and_the_pushed_version_are_listed(folder, capsys, monkeypatch):
    root = folder / "runs" / "r"
    decision, pushed = Decision(root / "artifacts" / "decision"), Pushed(root / "artifacts" / "pushed")
    monkeypatch.setattr(Decision, "load", lambda self: type("Report", (), {"selected": "tflite int8"}))
    facts = {"path": "/served/canary/served/3", "canary": 10}
    monkeypatch.setattr(Pushed, "load", lambda self: type("Report", (), facts))
    root.mkdir(parents=True)
    with recorded_run(root, "retrain") as record:
        add_decision(record, root, [decision, pushed])
    record = records(capsys)["runs/r"]
    assert (record["selected"], record["pushed"]) == ("tflite int8", "/served/canary/served/3")
    assert record["report"] == "artifacts/decision/report.html"
    assert main(["runs"]) == 0
    pushed = "pushed: /served/canary/served/3, a canary with 10% of the requests"
    assert capsys.readouterr().out.endswith(f"  retrain  succeeded: tflite int8, {pushed}\n")


def test_a_missing_folder_is_an_error_and_an_empty_one_is_not(folder, capsys):
    assert main(["runs"]) == 1
    assert "received: runs: no such folder" in capsys.readouterr().err
    (folder / "runs" / "other").mkdir(parents=True)
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no runs in runs\n"


def test_a_killed_run_is_interrupted_and_a_live_one_is_running(folder, capsys):
    words = [
        "-m",
        "tfopt.run",
        "run",
        "waiting.py",
        "--engine",
        "process",
        "--root",
        "runs/w",
        "--set",
        "data=data.txt",
    ]
    (folder / "waiting.py").write_text(
        (folder / "counting.py").read_text().replace("counting", "waiting").replace("import count, fail", "import *")
        + "\nimport time\nfrom tfopt import component, Output\nfrom tfopt.artifacts import Report\n"
        "@component(image='tf')\ndef count(data: Input[Files], report: Output[Report], *, unit: str = 'a') -> None:\n"
        "    '''Wait.\n\n    Args:\n        data: D.\n        report: R.\n        unit: U.\n    '''\n"
        "    print('started', flush=True)\n    time.sleep(60)\n"
    )
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    for number, state in ((signal.SIGKILL, "interrupted"), (signal.SIGINT, "interrupted")):
        process = subprocess.Popen(
            [sys.executable, *words, "--debug"],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "started\n"
        assert records(capsys)["runs/w"]["state"] == "running"
        assert main(["clean", "--keep", "0", "--yes"]) == 0
        assert capsys.readouterr().out == "nothing to remove\n"
        process.send_signal(number)
        process.wait(timeout=20)
        assert records(capsys)["runs/w"]["state"] == state
    (folder / "runs" / "w" / f".partial-{socket.gethostname()}-{process.pid}-abc").touch()  # of a record
    assert main(["clean", "--keep", "0", "--yes"]) == 0
    assert not (folder / "runs" / "w").exists()


def test_clean_keeps_the_newest_of_each_pipeline(folder, capsys):
    for year, name in enumerate("abcd", 2020):
        assert run("counting", name) == 0
        backdate(name, year)
    assert run("failing", "f") == 1
    backdate("f", 1999)
    before = sorted(Path("runs").rglob("*"))
    capsys.readouterr()
    assert main(["clean", "--keep", "2"]) == 0  # removes nothing
    shown = capsys.readouterr().out.splitlines()
    folders = [line for line in shown[:-1] if not line.startswith(" ")]
    assert [line.split(":")[0] for line in folders] == ["runs/b", "runs/a"]
    assert all("would be removed, " in line and "0 B" not in line for line in folders)
    (key,) = (path.name for path in Path("runs/b/artifacts/count/report").iterdir())
    names = {f"artifacts/count/report/{key}", f"executions/count/{key}.json", "run.log", "run.json"}
    assert {line.strip() for line in shown if line.startswith(" ")} == names
    assert sorted(Path("runs").rglob("*")) == before
    assert main(["clean", "--keep", "2", "--yes", "--json"]) == 0
    removed = json.loads(capsys.readouterr().out)
    assert [(entry["folder"], entry["state"]) for entry in removed] == [("runs/b", "removed"), ("runs/a", "removed")]
    assert sorted(path.name for path in Path("runs").iterdir()) == ["c", "d", "f"]
    assert run("counting", "c") == 0  # what remains can be used


def test_clean_removes_only_what_runs_have_written(folder, capsys):
    assert run("counting", "a") == 0
    written = {path.name for path in Path("runs/a").iterdir()}
    assert written <= {"artifacts", "executions", SOURCES, METADATA, "run.log", "run.log.1", RECORD}
    version = Path("runs/a/pushed/1/model.tflite")
    version.parent.mkdir(parents=True)
    version.write_text("served")
    Path("runs/notes").mkdir()
    Path("runs/notes/artifacts").mkdir()  # no record: no folder of a run
    outside = folder / "outside"
    outside.mkdir()
    (outside / "file").touch()
    Path("runs/a/artifacts/link").symlink_to(outside)
    assert main(["clean", "--keep", "0", "--yes"]) == 0
    assert sorted(map(str, Path("runs/a").rglob("*")))[:2] == ["runs/a/artifacts", "runs/a/artifacts/link"]
    assert {path.name for path in Path("runs/a").iterdir()} == {"artifacts", "pushed"}
    assert version.read_text() == "served" and (outside / "file").exists()
    assert Path("runs/notes/artifacts").is_dir()


@pytest.mark.parametrize("keep", ["0", "1"])
def test_clean_leaves_files_that_no_record_names(folder, keep):
    assert run("counting", "a") == 0
    own = [
        Path("runs/a", name)
        for name in (
            *("artifacts/x/y/z", "artifacts/count/report/mine/file", "artifacts/count/.system/mine/7", "sources/x/y"),
            *("executions/count/notes.json", "executions/x/0123456789abcdef.txt", "metadata.sqlite.backup"),
        )
    ]
    (result,) = Path("runs/a/artifacts/count/report").iterdir()
    own.append(result.parent.parent / "mine" / result.name)  # not an output of the step
    for file in own:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    Path("runs/a/artifacts/count/report/fedcba9876543210").mkdir()  # a name of a result, but no record has it
    assert main(["clean", "--keep", keep, "--yes"]) == 0
    assert [file for file in own if not file.exists() or file.read_text() != "mine"] == []
    assert Path("runs/a/artifacts/count/report/fedcba9876543210").is_dir()
    assert Path("runs/a/run.json").exists() is (keep == "1")


def test_a_removal_that_was_killed_goes_on(limited, monkeypatch):
    for limit in (1, 2, 3):
        assert run("counting", "a", "--set", f"limit={limit}") == 0

    def kill(root: Path, path: Path) -> None:
        monkeypatch.undo()
        cleanup.remove_below(root, path)
        raise KeyboardInterrupt

    (removed, *_) = cleanup.find_old_results(Path("runs/a"), 1).outputs
    monkeypatch.setattr(cleanup, "remove_below", kill)
    assert main(["clean", "--keep", "1", "--yes"]) == 130
    monkeypatch.chdir(limited)
    assert not removed.exists() and len(list(Path("runs/a/artifacts/count/report").iterdir())) == 2
    assert main(["clean", "--keep", "1", "--yes"]) == 0
    assert results("a") == [3]


@pytest.mark.parametrize("link", ["artifacts", "artifacts/count", "artifacts/count/report", "executions", ""])
@pytest.mark.parametrize("keep", ["0", pytest.param("1", marks=pytest.mark.nightly)])
def test_clean_follows_no_links(limited, link, keep):
    for limit in (1, 2):
        assert run("counting", "a", "--set", f"limit={limit}") == 0
    moved = Path("data")
    (Path("runs/a") / link).rename(moved)
    (Path("runs/a") / link).symlink_to(moved.absolute())
    before = {path for path in moved.rglob("*") if path.suffix != ".json" or "executions" not in path.parts}
    assert main(["clean", "--keep", keep, "--yes"]) == 0
    assert before <= set(moved.rglob("*"))


def test_clean_leaves_what_another_user_wrote(limited, monkeypatch):
    for limit in (1, 2):
        assert run("counting", "a", "--set", f"limit={limit}") == 0
    before = sorted(Path("runs").rglob("*"))
    owner = os.geteuid()
    for keep in ("0", "1"):
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert main(["clean", "--keep", keep, "--yes"]) == 0
        assert sorted(Path("runs").rglob("*")) == before
    monkeypatch.undo()


def test_a_record_that_leads_out_of_the_folder_or_is_of_another_user_is_not_reused(folder):
    def is_reused() -> bool:
        before = set(outputs.iterdir())
        assert run("counting", "a") == 0
        return set(outputs.iterdir()) == before

    run("counting", "a")
    outputs = Path("runs/a/artifacts/count/report")
    (record,), (output,) = Path("runs/a/executions/count").iterdir(), outputs.iterdir()
    assert is_reused()
    output.rename("runs/report")
    text = record.read_text()
    record.write_text(text.replace(f"artifacts/count/report/{output.name}", "../report"))
    assert text != record.read_text() and not is_reused()
    record.unlink()
    assert is_reused()
    (newest,) = Path("runs/a/executions/count").glob("*.json")
    newest.rename("record.json")
    newest.symlink_to(Path("record.json").absolute())
    assert not is_reused()


def test_a_damaged_record_is_named_and_the_other_runs_are_listed_and_cleaned(folder, capsys):
    for name in "ab":
        run("counting", name)
    for name, text in (("c", "{"), ("d", "[]"), ("e", '{"schema_version": 99}')):
        Path("runs", name).mkdir()
        Path("runs", name, "run.json").write_text(text)
    capsys.readouterr()
    assert main(["runs"]) == 0
    output = capsys.readouterr()
    assert [line.split()[0] for line in output.out.splitlines()] == ["runs/b", "runs/a"]
    assert all(f"runs/{name}/run.json" in output.err for name in "cde")
    assert main(["clean", "--keep", "0", "--yes"]) == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["c", "d", "e"]


def test_clean_leaves_a_folder_whose_lock_is_held(folder, capsys):
    assert run("counting", "a") == 0
    with lock_folder(Path("runs/a")):
        assert records(capsys)["runs/a"]["state"] == "running"
        assert main(["clean", "--keep", "0", "--yes"]) == 0
    assert Path("runs/a/artifacts").is_dir()


def test_a_wrong_number_to_keep_is_refused(folder, capsys):
    Path("runs").mkdir()
    assert main(["clean", "--keep", "-1"]) == 1
    assert "expected: a number from 0" in capsys.readouterr().err


def results(root: str) -> list[str]:
    """Return the limits of the results of the step ``count`` in a folder, in the order of their records' times."""
    files = sorted(Path("runs", root, "executions", "count").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    limits = [json.loads(file.read_text())["parameters"]["limit"] for file in files]
    outputs = {path.name for path in Path("runs", root, "artifacts", "count", "report").iterdir()}
    assert outputs == {file.stem for file in files}
    return limits


@pytest.fixture
def limited(folder: Path) -> Path:
    """Let the pipeline ``counting`` pass on another parameter: each value gives another result."""
    file = folder / "counting.py"
    file.write_text(file.read_text().replace("unit", "limit"))
    return folder


def test_clean_keeps_the_results_of_the_last_executions_in_a_folder(limited, capsys):
    for limit in (1, 2, 3, 4, 1):  # the last run reuses the first result
        assert run("counting", "a", "--set", f"limit={limit}") == 0
    assert results("a") == [2, 3, 4, 1]
    before = sorted(Path("runs").rglob("*"))
    capsys.readouterr()
    assert main(["clean", "--keep", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("runs/a: 2 old executions would be removed, ") and "0 B" not in shown
    assert sorted(Path("runs").rglob("*")) == before
    assert main(["clean", "--keep", "2", "--yes", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["folder"], entry["state"], entry["executions"]) == ("runs/a", "removed", 2)
    assert entry["bytes"] > 0
    assert results("a") == [4, 1]
    assert main(["clean", "--keep", "2", "--yes"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    run("counting", "a", "--set", "limit=1")
    assert results("a") == [4, 1]  # reused
    run("counting", "a", "--set", "limit=2")
    assert results("a") == [4, 1, 2]


def test_a_clock_that_was_set_back_does_not_make_the_last_results_old(limited, monkeypatch):
    for limit in (1, 2):
        run("counting", "a", "--set", f"limit={limit}")
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)  # in 2001
    for limit in (3, 1):
        run("counting", "a", "--set", f"limit={limit}")
    assert results("a") == [2, 3, 1]
    assert main(["clean", "--keep", "2", "--yes"]) == 0
    assert results("a") == [3, 1]


def test_clean_removes_outputs_of_killed_runs_and_not_those_of_a_running_one(limited, capsys):
    run("counting", "a")
    placed = Path("runs/a/artifacts/count/report/0123456789abcdef")  # before a record was written
    placed.mkdir()
    Path("runs/a/executions/count/0123456789abcdef.unfinished").touch()
    (placed / "report.json").write_bytes(bytes(5000))
    with lock_folder(Path("runs/a")):
        assert main(["clean", "--keep", "1", "--yes"]) == 0
    assert placed.is_dir()
    capsys.readouterr()
    assert main(["clean", "--keep", "1", "--yes"]) == 0
    assert capsys.readouterr().out == "runs/a: outputs of killed runs removed, 5.00 kB\n"
    assert not placed.exists()
    assert results("a") == [None]


def test_clean_reports_the_bytes_that_are_freed(limited, capsys):
    run("counting", "a")
    placed = Path("runs/a/artifacts/count/report/0123456789abcdef")
    placed.mkdir()
    Path("runs/a/executions/count/0123456789abcdef.unfinished").touch()
    for name, size in (("served", 70_000), ("own", 3_000)):
        (placed / name).write_bytes(bytes(size))
    Path("served").hardlink_to(placed / "served")  # as in the destination of a push
    (placed / "twice").hardlink_to(placed / "own")
    capsys.readouterr()
    assert main(["clean", "--keep", "1", "--json"]) == 0
    assert [entry["bytes"] for entry in json.loads(capsys.readouterr().out)] == [3_000]


def test_the_log_follows_no_link(folder, capsys):
    Path("thesis").write_text("mine")
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/run.log").symlink_to(folder / "thesis")
    assert run("counting", "a") == 1
    assert "a path that is no link" in capsys.readouterr().err
    assert Path("thesis").read_text() == "mine"


def test_a_large_log_makes_room_for_a_new_one(folder, monkeypatch):
    run("counting", "a")
    log, old = Path("runs/a/run.log"), Path("runs/a/run.log.1")
    log.write_text("first\n")
    run("counting", "a")
    assert log.read_text().startswith("first\n") and not old.exists()
    monkeypatch.setattr("tfopt.cli.terminal.log_redirect.LIMIT", 5)
    run("counting", "a")
    assert old.read_text().startswith("first\n") and "first" not in log.read_text()
    assert main(["clean", "--keep", "0", "--yes"]) == 0
    assert not Path("runs/a").exists()
