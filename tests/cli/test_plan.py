"""Test `tfopt plan`: it announces what the run then does, with reasons and times, and writes and imports nothing."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfopt.artifacts import imported_modules
from tfopt.cli.engines import load_plan
from tfopt.cli.main import main
from tfopt.dag import tracing
from tfopt.execution import code_digest

DAG = '''
from tests.toys import add, attempt, count, note
from tfopt import Input, Steps
from tfopt.artifacts import Files
from tfopt.trace import Inherited


def counting(steps: Steps, data: Input[Files], *, limit: Inherited = 9, start: Inherited, book: str = "book") -> None:
    """Count twice, add, and note."""
    limited = steps(count, data=data, limit=limit)
    full = steps(count, data=data)
    steps(add, reports=[limited.outputs["report"], full.outputs["report"]], start=start)
    steps(note, data=data, book=book)
'''


# Plans do not distinguish the runners of TFX; test_run_engines.py has the reuse of each engine every day.
NIGHTLY = [pytest.param(engine, marks=pytest.mark.nightly) for engine in ("process", "beam")]
EVERY = pytest.mark.parametrize("engine", ["local", *NIGHTLY])
# The reasons are found by the same code in the records of either.
RECORDED = pytest.mark.parametrize(
    "engine", ["process", *(pytest.param(engine, marks=pytest.mark.nightly) for engine in ("local", "beam"))]
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    (tmp_path / "counting.py").write_text(DAG)
    (tmp_path / "data.txt").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(*values: str, engine: str = "process") -> list[str]:
    named = [part for value in ("data=data.txt", *values) for part in ("--set", value)]
    return ["counting.py", *named, "--engine", engine]


def run(*values: str, engine: str = "process") -> None:
    assert main(["run", *words(*values, engine=engine)]) == 0


def plan(capsys, *values: str, engine: str = "process") -> dict:
    capsys.readouterr()
    assert main(["plan", *words(*values, engine=engine), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def actions(planned: dict) -> dict[str, str]:
    return {name: step["action"] for name, step in planned["steps"].items()}


@EVERY
def test_before_the_first_run_every_step_runs_and_nothing_is_written(engine, folder, capsys):
    planned = plan(capsys, engine=engine)
    assert set(actions(planned).values()) == {"run"}
    assert planned["steps"]["count"] == {"action": "run", "reasons": ["no earlier result"], "seconds": None}
    assert (planned["seconds"], planned["steps_without_time"]) == (0, 4)
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["counting.py", "data.txt"]


@EVERY
def test_the_run_does_what_the_plan_says(engine, folder, capsys):
    run(engine=engine)
    for values, expected in (
        ([], "reuse reuse reuse run"),
        (["limit=3"], "run reuse depends run"),
        (["start=5"], "reuse reuse run run"),
        ([], "reuse reuse reuse run"),
        (["limit=3", "start=5"], "reuse reuse run run"),
    ):
        planned = plan(capsys, *values, engine=engine)
        if engine != "process":  # an output that is made again is a new artifact of TFX, even if it is equal
            expected = expected.replace("depends", "run")
        assert actions(planned) == dict(zip(("count", "count_2", "add", "note"), expected.split(), strict=True))
        assert main(["run", *words(*values, engine=engine), "--json"]) == 0
        reused = {name: step["reused"] for name, step in json.loads(capsys.readouterr().out).items()}
        for name, action in actions(planned).items():
            assert action == "depends" or reused[name] == (action == "reuse"), (values, name)


@pytest.mark.parametrize("engine", ["process", "local"])
def test_the_outputs_that_are_reused_are_known(engine, folder):
    run(engine=engine)
    dag = tracing.load("counting.py")
    steps = load_plan(engine)(dag, {"data": str(folder / "data.txt")}, folder / "runs" / "counting")
    assert Path(steps["count"].outputs["report"], "report.json").is_file()
    assert steps["note"].outputs == {}


@RECORDED
def test_each_reason_names_what_changed(engine, folder, capsys, monkeypatch):
    run(engine=engine)

    def reasons(*values: str) -> dict[str, list[str]]:
        steps = plan(capsys, *values, engine=engine)["steps"]
        return {name: step["reasons"] for name, step in steps.items() if step["reasons"]}

    assert reasons() == {"note": ["it runs in every run"]}
    assert reasons("limit=3")["count"] == ["parameter limit changed: 9 -> 3"]
    assert reasons("limit=3")["add"] == ["after count"]
    assert reasons("limit=3", "start=5")["add"][0] == "parameter start changed: 0 -> 5"
    Path("data.txt").write_text("two\n")
    assert reasons()["count"] == ["data changed"]
    Path("data.txt").write_text("one\n")
    (report,) = Path("runs/counting/artifacts/count/report").rglob("report.json")
    content = report.read_text()
    report.write_text("{}")
    assert reasons()["count"] == ["its outputs were changed or removed"]
    report.write_text(content)
    assert "count" not in reasons()
    version = imported_modules._version
    monkeypatch.setattr(imported_modules, "_version", lambda name: "0" if name == "numpy" else version(name))
    assert reasons()["count"] == [f"package numpy changed: {version('numpy')} -> 0"]
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    monkeypatch.setitem(code_digest._ENVIRONMENT, "XLA_FLAGS", "fast")
    assert reasons()["count"] == ["variable XLA_FLAGS changed: none -> fast"]


@RECORDED
def test_a_step_is_compared_with_the_execution_that_differs_least_and_not_with_the_newest(engine, folder, capsys):
    run("limit=5", engine=engine)
    (folder / "data.txt").write_text("one\ntwo\n")
    run("limit=6", engine=engine)
    (folder / "data.txt").write_text("one\n")
    (reason,) = plan(capsys, "limit=7", engine=engine)["steps"]["count"]["reasons"]
    assert reason == "parameter limit changed: 5 -> 7"


def test_changed_code_and_a_record_of_an_earlier_version_are_reasons(folder, capsys):
    run()
    for record in Path("runs/counting/executions").glob("*/*.json"):
        content = json.loads(record.read_text())
        content["code"] = "another"
        content["code_parts"]["sources"] = "other"
        if record.parent.name == "add":
            del content["code_parts"]
        record.rename(record.with_stem("another")).write_text(json.dumps(content))
    steps = plan(capsys)["steps"]
    assert steps["count"]["reasons"] == ["its code changed"]
    assert steps["add"]["reasons"] == ["code changed"]


def test_the_expected_time_is_that_of_the_newest_execution_of_each_step_that_runs(folder, capsys):
    run()
    for name, seconds in (("count", 70.0), ("count_2", 9.0), ("add", 5.5), ("note", 0.25)):
        (record,) = Path("runs/counting/executions", name).glob("*.json")
        record.write_text(json.dumps(json.loads(record.read_text()) | {"seconds": seconds}))
    planned = plan(capsys, "limit=3")
    assert (planned["seconds"], planned["steps_without_time"]) == (75.75, 0)
    assert main(["plan", *words("limit=3")]) == 0
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:5] == [
        "step action last took why",
        "count run 1 min 10 s parameter limit changed: 9 -> 3",
        "count_2 reuse 9.0 s",
        "add depends 5.5 s after count",
        "note run 0.2 s it runs in every run",
    ]
    assert lines[-1] == (
        "2 of 4 steps run; 1 more if the outputs of these change; up to about 1 min 16 s, as in earlier runs"
    )
    assert "\x1b" not in out


def test_a_run_file_is_planned(folder, capsys):
    run("limit=7")
    Path("counting.yaml").write_text(
        "pipeline: counting.py\nengine: process\nroot: runs/counting\n"
        "values: {data: data.txt, limit: 7, book: ./book}\n"
    )
    capsys.readouterr()
    assert main(["plan", "-f", "counting.yaml", "--json"]) == 0
    assert set(actions(json.loads(capsys.readouterr().out)).values()) == {"reuse", "run"}
    assert main(["plan", "-f", "counting.yaml", "--set", "limit=0"]) == 1
    assert "received: counting: limit=0" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_blessing_is_not_required_of_a_pipeline_without_a_decision(command, folder, capsys):
    assert main([command, *words(), "--require-blessing"]) == 1
    assert "received: --require-blessing for counting\nexpected: a pipeline that selects" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_plan_for_tfx_writes_nothing_and_has_the_times_of_executions(folder, capsys):
    run(engine="local")
    run(engine="local")  # whose cached executions have no time of their own
    files = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")}
    planned = plan(capsys, "limit=3", engine="local")
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("*")} == files
    assert planned["steps_without_time"] == 0
    assert 0 < planned["seconds"] < 60


@pytest.mark.parametrize("damage", [pytest.param("removed", marks=pytest.mark.nightly), "changed", "failed"])
def test_a_result_that_tfx_must_not_reuse_has_its_reason(damage, folder, capsys, digits_lite):
    Path("making.py").write_text(
        "from tests.toys import attempt, copy_model\nfrom tfopt import Input, Steps\n"
        "from tfopt.artifacts import Model\n\n\n"
        "def making(steps: Steps, model: Input[Model]) -> None:\n"
        '    """Make a model, or record why not, and copy it."""\n'
        '    made = steps(attempt, model=model, on_failure="row")\n'
        '    steps(copy_model, model=made.outputs["made"])\n'
    )
    shutil.copytree(digits_lite, "model")
    if damage != "failed":
        Path("ready").touch()
    making = ["making.py", "--set", "model=model", "--engine", "local"]
    assert main(["run", *making]) == (1 if damage == "failed" else 0)
    (made,) = Path("runs/making/artifacts/attempt/made").iterdir()
    if damage == "removed":
        shutil.rmtree(made)
    elif damage == "changed":
        (made / "another").touch()
    capsys.readouterr()
    assert main(["plan", *making, "--json"]) == 0
    reasons = {name: step["reasons"] for name, step in json.loads(capsys.readouterr().out)["steps"].items()}
    if damage == "failed":
        assert reasons == {"attempt": ["the earlier attempt failed"], "copy_model": ["no earlier result"]}
    else:
        assert reasons == {"attempt": ["its outputs were changed or removed"], "copy_model": ["after attempt"]}


@pytest.mark.parametrize("command", ["plan", pytest.param("run", marks=pytest.mark.nightly)])
def test_a_damaged_metadata_store_is_an_error_in_three_parts(folder, capsys, command):
    Path("runs/counting").mkdir(parents=True)
    Path("runs/counting/metadata.sqlite").write_text("no database")
    assert main([command, *words(engine="local")]) == 1
    received, expected, _ = capsys.readouterr().err.splitlines()[-3:]
    assert "metadata.sqlite" in received
    assert expected == "expected: the metadata store of earlier runs"


def test_a_plan_of_a_shipped_pipeline_imports_no_framework(folder):
    Path("rows.csv").write_text("x,label\n1,0\n")
    Path("model.py").write_text("def build_model(): ...\n")
    script = (
        "import sys; from tfopt.cli.main import main\n"
        "code = main(['plan', 'retrain', '--engine', 'process', '--set', 'data=rows.csv',"
        " '--set', 'module=model.py'])\n"
        "frameworks = {'tensorflow', 'keras', 'apache_beam', 'tfx', 'kfp', 'pandas', 'pyarrow'}\n"
        "assert not frameworks & sys.modules.keys()\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" no earlier result") == 14


def save(*more: str) -> int:
    return main(["plan", *words(), "-o", "plan.json", *more])


@EVERY
def test_a_saved_plan_is_executed(engine, folder, capsys):
    assert main(["plan", *words("limit=5", "book=a book", engine=engine), "-o", "a plan.json"]) == 0
    assert main(["run", "--plan", "a plan.json", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert not any(step["reused"] for step in steps.values())
    planned = plan(capsys, "limit=5", "book=a book", engine=engine)
    assert {action for name, action in actions(planned).items() if name != "note"} == {"reuse"}


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda folder: (folder / "data.txt").write_text("two\n"), "plan.json: the content of data is another one"),
        (lambda folder: run(), "count: reuse [(]planned: run, no earlier result[)]"),
        (lambda folder: (folder / "counting.py").write_text(DAG.replace("note(", "note (")), None),
        (lambda folder: (folder / "plan.json").write_text("{}"), "SavedPlan"),
    ],
)
def test_a_plan_that_does_not_hold_is_refused(change, received, folder, capsys):
    assert save() == 0
    change(folder)
    before = sorted(path for path in folder.rglob("*") if "results" in path.parts)
    code = main(["run", "--plan", "plan.json"])
    assert code == (0 if received is None else 1)
    if received:
        assert re.search(received, capsys.readouterr().err)
        assert sorted(path for path in folder.rglob("*") if "results" in path.parts) == before


def test_a_plan_has_the_arguments_of_its_run(folder, capsys):
    save()
    assert main(["run", "counting.py", "--plan", "plan.json"]) == 1
    assert "leave them out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run"])
    assert "pipeline, or --plan" in capsys.readouterr().err


def test_the_exit_code_tells_whether_steps_would_run(folder, capsys):
    assert save("--detailed-exitcode") == 2
    run()
    assert save("--detailed-exitcode") == 0
    (folder / "data.txt").write_text("two\n")
    assert save("--detailed-exitcode") == 2
    assert save() == 0
