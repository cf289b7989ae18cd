"""Test `tfopt history`: the runs of a destination, in order, with the reason of each."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tfopt.cli.main import main
from tfopt.model_store.run_history import ModelRecord, RunRecord
from tfopt.reports import report_schema
from tfopt.reports.decision_report import MeasurementConditions, QualityConditions, SpeedConditions

CONDITIONS = MeasurementConditions(QualityConditions("classification", "label", "test"), SpeedConditions("cpu", 1, [1]))


def record(day: int, version: int | None, reason: str) -> RunRecord:
    metrics = {"accuracy": 0.9 + day / 100, "log_loss": 0.3, "latency": 0.05}
    winner, parent = ModelRecord("tflite int8", "w", "tflite", metrics), ModelRecord("trained", "p", "keras", metrics)
    blessed = version is not None
    time = f"2026-11-0{day}T03:04:05.000006+00:00"
    values = {"decision": f"d{day}", "time": time, "blessed": blessed, "version": version}
    return RunRecord(**{**values, "conditions": CONDITIONS, "winner": winner, "parent": parent, "reason": reason})


@pytest.fixture
def served(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "served"
    (folder / "history").mkdir(parents=True)
    runs = record(3, 2, "blessed"), record(1, 1, "blessed"), record(2, None, "auc: worse than allowed\nby 0.2")
    for name, run in zip("abc", runs, strict=True):
        (folder / "history" / f"{name}.json").write_text(json.dumps(report_schema.dump(run)))
    return folder


def test_runs_are_listed_with_version_metrics_and_reason(served, capsys):
    assert main(["history", "served"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["date", "version", "selected", "metrics", "why"]
    text = [" ".join(line.split()) for line in lines]
    assert text[0] == "2026-11-01 03:04 1 tflite int8 accuracy 91.00%, log loss 0.3 blessed"
    assert text[1].startswith("2026-11-02 03:04 - tflite int8 accuracy 92.00%, log loss 0.3 auc: worse")
    assert text[-1] == "2026-11-03 03:04 2 tflite int8 accuracy 93.00%, log loss 0.3 blessed"


def test_the_last_runs_are_written_as_json(served, capsys):
    assert main(["history", "served", "--last", "2", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [(run["version"], run["reason"][:4]) for run in runs] == [(None, "auc:"), (2, "bles")]


def test_records_of_earlier_versions_have_no_reason(served, capsys):
    (file,) = served.glob("history/b.json")
    content = json.loads(file.read_text())
    del content["reason"]
    file.write_text(json.dumps(content))
    assert main(["history", "served", "--json"]) == 0
    assert "reason" not in json.loads(capsys.readouterr().out)[0]
    assert main(["history", "served"]) == 0


def test_without_a_history_there_is_nothing_to_list(served, capsys):
    assert main(["history"]) == 0
    assert capsys.readouterr().out == "no runs in the history of pushed\n"


def test_a_wrong_number_is_refused(served, capsys):
    assert main(["history", "served", "--last", "0"]) == 1
    assert "expected: a number from 1" in capsys.readouterr().err


def test_a_speed_that_other_processes_disturbed_is_marked(served, capsys):
    run = record(4, 3, "blessed")
    metrics = {"latency": 0.05}
    winner = replace(run.winner, metrics=metrics, disturbed=["latency"])
    (served / "history" / "d.json").write_text(json.dumps(report_schema.dump(replace(run, winner=winner))))
    assert main(["history", "served", "--last", "1"]) == 0
    assert "ms (unstable)" in " ".join(capsys.readouterr().out.split())
