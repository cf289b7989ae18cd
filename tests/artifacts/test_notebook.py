"""Test what a notebook shows of artifacts and runs: the facts of the report, escaped, without scripts or requests."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import DIGITS, make_models, write_reports
from tests.toys import count
from tfopt.artifacts import Artifact, Benchmark, Decision, Evaluation, Inspection, Report
from tfopt.artifacts.base import Outputs
from tfopt.components.select_model.component import select_model
from tfopt.dag.outcome import Outcome, RunOutcome

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, Artifact]:
    """Return the artifacts of a decision, one of whose models has a name with markup."""
    folder = tmp_path_factory.mktemp("decision")
    rows = [*DIGITS[:-1], replace(DIGITS[-1], name=HOSTILE)]
    models = make_models([replace(row, name=f"{number}") for number, row in enumerate(rows)], folder / "models")
    for model, row in zip(models, rows, strict=True):
        card = model / "model_card.json"
        card.write_text(re.sub(r'"name": "[^"]*"', f'"name": "{row.name}"', card.read_text()))
    evaluation, benchmark = write_reports(rows, models, folder)
    return select_model(
        baseline=models[0], candidates=models[1:], evaluation=evaluation, benchmark=benchmark,
        selected=folder / "selected", decision=folder / "decision", blessing=folder / "blessing", goals=[],
    ) | {"evaluation": evaluation, "benchmark": benchmark}  # fmt: skip


def check_harmless(shown: str) -> None:
    """Check that neither the notebook nor a frame in it runs a script or loads anything."""
    for text in (shown, *map(html.unescape, re.findall(r'srcdoc="([^"]*)"', shown))):
        assert not re.search(r"<script|\son\w+=|javascript:|(src|href)=\"(?!data:|#)|url\((?!data:|#)", text, re.I)


def test_a_decision_shows_its_page_in_a_frame_without_scripts(outputs):
    shown = outputs["decision"]._repr_html_()
    assert re.match(r"<iframe sandbox title=", shown)
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert page == (outputs["decision"].path / Decision.page).read_text()
    assert 'id="main-table"' in page and "<svg" in page
    assert HOSTILE not in page
    check_harmless(shown)


def test_an_evaluation_shows_metrics_and_differences(outputs):
    shown = outputs["evaluation"]._repr_html_()
    assert "Evaluation on 1,000 examples of split eval, differences to trained" in shown
    assert "<td>98.10%</td>" in shown  # of the baseline
    assert "<td>97.70% (-0.40 points)</td>" in html.unescape(shown)
    assert html.escape(HOSTILE) in shown
    check_harmless(shown)


def test_a_benchmark_shows_latency_speed_and_size(outputs):
    shown = outputs["benchmark"]._repr_html_()
    row = shown[shown.index("<td>tflite int8</td>") :]
    assert "<td>0.0389 ms</td><td>10.6x, faster</td>" in row[:200]
    assert "45.1 kB" in row
    check_harmless(shown)


@pytest.mark.parametrize("kind", [Decision, Evaluation, Benchmark, Inspection, Report, Artifact])
def test_an_artifact_without_files_shows_its_location(kind, tmp_path: Path):
    shown = kind(tmp_path / "<b>", {"name": HOSTILE, "list": []})._repr_html_()
    assert f"<caption>{kind.__name__}</caption>" in shown
    assert "/&lt;b&gt;</td>" in shown
    check_harmless(shown)


def test_a_report_without_page_shows_its_facts(outputs):
    shown = outputs["blessing"]._repr_html_()
    assert "<td>blessed</td><td>True</td>" in shown


def test_outputs_of_a_component_show_each_artifact(outputs):
    shown = Outputs(outputs)._repr_html_()
    assert all(artifact._repr_html_() in shown for artifact in outputs.values())
    assert "'decision': Decision('" in repr(outputs)


def test_a_component_returns_what_a_notebook_shows(tmp_path: Path):
    (tmp_path / "data.csv").write_text("1\n2\n")
    shown = count(data=tmp_path / "data.csv", report=tmp_path / "report")._repr_html_()
    assert "<td>count</td><td>4.0</td>" in shown


def test_a_run_shows_its_steps_and_the_decision(outputs):
    run = RunOutcome(
        train=Outcome(True, 0.1, {"report": Report("a/b")}),
        select_model=Outcome(False, 80, {"decision": outputs["decision"]}),
    )
    shown = run._repr_html_()
    assert "Run of 2 steps" in shown
    assert "<td>train</td><td>reused</td><td>report: a/b</td>" in shown
    assert "<td>select_model</td><td>1 min 20 s</td>" in shown
    assert shown.count("<iframe sandbox") == 1
    check_harmless(shown)
