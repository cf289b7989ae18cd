"""Test `tfopt diff` and `tfopt open`: differences of two runs, and the report of a run."""

import json
import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import DIGITS, make_models, write_reports
from tfopt.artifacts import Decision, imported_modules
from tfopt.cli.main import main
from tfopt.cli.run_diff import Difference, print_differences
from tfopt.components.select_model.component import select_model
from tfopt.run_records.run_record import add_decision, recorded_run

COUNT = '''
from tests.toys import count
from tfopt import Input, Steps
from tfopt.artifacts import Files
from tfopt.trace import Inherited


def counting(steps: Steps, data: Input[Files], *, unit: Inherited, notes: Inherited) -> None:
    """Count."""
    steps(count, data=data, unit=unit, notes=notes)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    (tmp_path / "counting.py").write_text(COUNT)
    (tmp_path / "data.txt").write_text("one\n")
    monkeypatch.chdir(tmp_path)
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(root: str, *values: str, engine: str = "process") -> None:
    named = [part for value in ("data=data.txt", *values) for part in ("--set", value)]
    assert main(["run", "counting.py", *named, "--engine", engine, "--root", f"runs/{root}"]) == 0


def diff(capsys, first: str, second: str) -> dict[tuple[str, str], tuple]:
    capsys.readouterr()
    assert main(["diff", first, second, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [Path(path).name for path in facts["runs"]] == [Path(first).name, Path(second).name]
    return {(one["kind"], one["name"]): tuple(one["values"]) for one in facts["differences"]}


@pytest.mark.parametrize("engine", ["process", pytest.param("beam", marks=pytest.mark.nightly)])
def test_values_and_contents_that_differ_are_listed(engine, folder, capsys):
    run("a", engine=engine)
    run("b", engine=engine)
    assert diff(capsys, "a", "runs/b") == {}
    assert main(["diff", "a", "b"]) == 0
    assert capsys.readouterr().out == "no differences\n"
    Path("data.txt").write_text("two\n")
    run("b", "unit=lines", 'notes=["x"]', engine=engine)
    differences = diff(capsys, "a", "b")
    assert differences.pop(("parameter", "unit")) == ("bytes", "lines")
    assert differences.pop(("parameter", "notes")) == ([], ["x"])
    digests = differences.pop(("content", "data"))
    assert len(set(digests)) == 2 and all(digests)
    assert differences == {}
    assert main(["diff", "a", "b"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[:3] == [
        ["kind", "name", "runs/a", "runs/b"],
        ["parameter", "unit", "bytes", "lines"],
        ["notes", "[]", '["x"]'],
    ]
    assert lines[3][:2] == ["content", "data"] and len(lines[3][2]) == 12


def test_packages_code_and_engine_that_differ_are_listed(folder, capsys, monkeypatch):
    run("a")
    version = imported_modules._version
    monkeypatch.setattr(imported_modules, "_version", lambda name: "0" if name == "numpy" else version(name))
    Path("moved.txt").write_text("one\n")
    run("b", engine="beam")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    differences = diff(capsys, "a", "b")
    assert differences == {("run", "engine"): ("process", "beam"), ("package", "numpy"): (version("numpy"), "0")}
    record = Path("runs/b/run.json")
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"code": {"count": "other"}, "sources": {"data": "/elsewhere"}}))
    differences = diff(capsys, "a", "b")
    assert differences[("code", "count")][1] == "other"
    assert differences[("source", "data")] == (str(folder / "data.txt"), "/elsewhere")


def test_a_record_of_an_earlier_version_is_compared_and_named(folder, capsys):
    run("a")
    old = {"pipeline": "counting", "state": "failed", "started": "2020-01-02T03:04:05+00:00", "host": "h"}
    Path("runs/old").mkdir()
    Path("runs/old/run.json").write_text(json.dumps({**old, "process": 1, "version": "0.0.1", "error": "[red]x"}))
    capsys.readouterr()
    assert main(["diff", "old", "a"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("runs/old: an earlier version of tfopt recorded no values, inputs, code and packages\n")
    assert " [red]x " in out and " 0.0.1 " in out
    assert main(["diff", "old", "b"]) == 1
    assert "received: b: no run" in capsys.readouterr().err


def decided(root: Path, rows) -> None:
    """Write a run with a decision on these models."""
    models = make_models(rows, root / "models")
    evaluation, benchmark = write_reports(rows, models, root, samples=False)
    folders = (root / "artifacts" / name for name in ("selected", "decision", "blessing"))
    outputs = select_model(models[0], models[1:], evaluation, benchmark, *folders)
    with recorded_run(root, "retrain", engine="process") as record:
        add_decision(record, root, [Decision(outputs["decision"].path)])


def test_metrics_and_decisions_are_compared_by_model(folder, capsys):
    for name in ("a", "b"):
        Path("runs", name).mkdir(parents=True)
    better = replace(
        DIGITS[-1], accuracy=0.981, delta=(0.0, -0.003, 0.003), p50=0.2, speedup=(11, 10.9, 11.1, "faster")
    )
    decided(folder / "runs/a", DIGITS)
    decided(folder / "runs/b", [*DIGITS[:-2], better])
    differences = diff(capsys, "a", "b")
    assert differences[("decision", "selected")] == ("tflite int8", "pruned 90%")
    assert differences[("model pruned 90%", "accuracy")] == (0.96, 0.981)
    assert differences[("model tflite int8", "size")] == (45_100, None)
    assert {kind for kind, _ in differences} == {"decision", "model tflite int8", "model pruned 90%"}
    assert main(["diff", "a", "b"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "decision selected tflite int8 pruned 90%" in out
    assert "model pruned 90% accuracy 96.00% 98.10%" in out and " size 45.1 kB - " in out
    assert out.endswith("the reports have their intervals (tfopt open RUN)")


def test_a_difference_below_the_shown_digits_is_in_the_json_only(capsys):
    differences = [Difference("model a", "accuracy", (0.5, 0.500001)), Difference("model a", "size", (1, 2))]
    print_differences(differences, ["a", "b"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:2]] == [
        ["model", "a", "size", "1", "B", "2", "B"]
    ]


def test_open_prints_the_path_of_the_report_without_a_display(folder, capsys, monkeypatch):
    Path("runs/a").mkdir(parents=True)
    decided(folder / "runs/a", DIGITS)
    page = str(folder / "runs/a/artifacts/decision/report.html")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: opened.append(uri) or len(opened) == 1)
    for words in ([], ["a"], ["runs/a"]):
        capsys.readouterr()
        assert main(["open", *words]) == 0
        assert capsys.readouterr().out == f"{page}\n"
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["open"]) == 0
    assert (capsys.readouterr().out, opened) == ("", [f"file://{page}"])
    assert main(["open", "--print"]) == 0
    assert (capsys.readouterr().out, len(opened)) == (f"{page}\n", 1)
    assert main(["open"]) == 0  # no browser could be started
    assert (capsys.readouterr().out, len(opened)) == (f"{page}\n", 2)


def test_open_without_a_report_is_an_error(folder, capsys):
    for words, received in (([], "runs: no such folder"), (["x"], "x: no run")):
        assert main(["open", *words]) == 1
        assert f"received: {received}" in capsys.readouterr().err
    run("a")
    for words, received in (([], "no run with a report in runs"), (["a"], "runs/a: no report (counting: succeeded)")):
        assert main(["open", *words]) == 1
        assert f"received: {received}" in capsys.readouterr().err
