"""Test the report on many candidates, as `shrink` makes them, and on models with a long lineage."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components.decisions import decide
from tests.components.test_select_model_report import report
from tests.reports import DIGITS, make_models, write_reports
from tfopt.artifacts import Decision
from tfopt.charts import bubble_chart
from tfopt.components.select_model import charts
from tfopt.components.select_model.component import select_model

FAST = replace(DIGITS[4], name="pruned 80% + clustered 32, tflite int8")
MANY = [*DIGITS[:4], FAST, *(replace(DIGITS[5], name=f"pruned {part}%", p50=0.3 + part / 1e3) for part in range(12))]


def test_the_chart_of_many_models_labels_only_the_important_ones(tmp_path):
    file = report(MANY, tmp_path, samples=False, slices=False)
    page = file.read_text()
    front = {row["name"] for row in Decision(file.parent).read()["models"] if row["pareto"]}
    wide = page.split('class="picture bubbles wide"')[1].split("</svg>")[0]
    named = re.findall(r'class="name"[^>]*>(.*?)</text>', wide)
    assert len(named) == len(front | {"trained", FAST.name}) < len(MANY)
    assert {"trained", "tflite float32"} <= set(named)
    assert wide.count("<circle") == wide.count("</circle>") == len(MANY)  # each has a tooltip
    assert '<span class=""> Not all models have labels' in page


@pytest.mark.parametrize("count", [5, 3], ids=["joined", "the fastest is the best"])
def test_the_line_of_the_best_models_is_explained_where_it_is_drawn(tmp_path, count):
    page = report(DIGITS[:count], tmp_path, samples=False, slices=False).read_text()
    picture = page.split('class="picture bubbles wide"')[1].split("</svg>")[0]
    assert (
        ("stroke-dasharray" in picture.partition("clip-path")[2]) == ("The dotted line joins" in page) == (count == 5)
    )


def test_labels_that_only_the_narrow_chart_lacks_are_missed_in_it_only(tmp_path, monkeypatch):
    draw = charts.draw_choice
    monkeypatch.setattr(charts, "draw_choice", lambda data: _without_a_narrow_name(draw(data)))
    page = report(DIGITS, tmp_path, samples=False, slices=False).read_text()
    assert '<span class="narrow"> Not all models have labels' in page


def _without_a_narrow_name(pictures: list[str]) -> list[str]:
    wide, narrow = pictures
    return [wide, narrow.replace('class="name"', 'class="left-out"', 1)]


def test_a_chart_that_cannot_be_drawn_does_not_prevent_the_decision(tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError("float <division>")

    monkeypatch.setattr(bubble_chart, "place_labels", fail)
    file = report(DIGITS, tmp_path)
    page = file.read_text()
    assert Decision(file.parent).read()["selected"] == "tflite int8"
    assert (
        "Without the chart of all models, which could not be drawn: ZeroDivisionError: float &lt;division&gt;" in page
    )
    assert 'class="picture spread wide"' in page
    assert "the report is written without the chart of all models" in caplog.text


def test_an_error_has_its_unit_and_the_value_of_a_constant_answer(tmp_path):
    def edit(content):
        content |= {"task": "regression", "label": "price"}
        for row in content["models"]:
            row |= {"slices": [], "confusion": []}
            for part in ("metrics", "delta"):
                values = {f"{key}": -1e4 * value for key, value in (row[part].get("accuracy") or {}).items()}
                ends = {"value": values["value"], "low": values["high"], "high": values["low"]} if values else {}
                row[part] = {"mean_absolute_error": {**ends, "higher_is_better": False}} if values else {}
        constant = {"value": -123.0, "low": -130.0, "high": -120.0, "higher_is_better": False}
        content["constant"] = {"name": "always 7", "metrics": {"mean_absolute_error": constant}}

    decide(DIGITS[:3], tmp_path, edit, goals=[], better_than_constant=False)
    page = (tmp_path / "decision" / "report.html").read_text()
    tile = page.split('<dl class="tiles">')[1].split("</div>")[0]
    assert "<dt>mean absolute error, in units of price</dt>" in tile
    assert "a constant answer: \N{MINUS SIGN}123" in tile
    assert "Mean absolute error is in units of price." in page


def test_long_pages_draw_the_most_important_models_only(tmp_path):
    page = report([*MANY, *(replace(MANY[-1], name=f"more {n}") for n in range(9))], tmp_path, slices=False).read_text()
    spread = page.split('class="picture spread wide"')[1].split("</svg>")[0]
    assert spread.split("<desc")[1].split("</desc>")[0].count("p50") == 16
    assert "Latency of 16 models" in spread and ">trained<" in spread
    assert page.count("Only 16 models are drawn") == 1


def test_the_reasons_of_others_do_not_repeat_a_long_name(tmp_path):
    file = report(MANY, tmp_path, samples=False, slices=False)
    reasons = {row["name"]: row["reasons"] for row in Decision(file.parent).read()["models"]}
    assert reasons["tflite float32"][0].startswith("the selected model is faster: ")


def test_the_lineage_has_every_step_and_the_second_round_of_fine_tuning(tmp_path):
    rows = [*DIGITS[:2], replace(DIGITS[4], name="tflite int8")]
    models = make_models(rows, tmp_path / "models")
    _add_second_round(models[0], models[2])
    evaluation, benchmark = write_reports(rows, models, tmp_path, samples=False, slices=False)
    out = {name: tmp_path / name for name in ("selected", "decision", "blessing")}
    select_model(models[0], models[1:], evaluation, benchmark, **out, goals=["accuracy max_degradation 0.01"])
    page = (out["decision"] / "report.html").read_text()
    assert (
        "second round of 3 epochs, used: accuracy 96.00% to 97.50% on 400 examples that it was not trained on" in page
    )
    commands = [line for block in page.split("<pre>")[1:] for line in block.split("</pre>")[0].splitlines()]
    pruned = next(line for line in commands if line.startswith("tfopt prune "))
    assert pruned.startswith("tfopt prune --model trained/ --module MODULE --pruned ")
    assert pruned.endswith("--pruned pruned_80/ --sparsity 0.8")
    exported = next(line for line in commands if line.startswith("tfopt export_tflite "))
    assert "--model pruned_80/ --examples examples/ --exported " in exported  # a card without names of inputs
    assert commands.index(pruned) < commands.index(exported)


def _add_second_round(parent: Path, child: Path) -> None:
    from tfopt.artifacts import Model

    scores = {"first": {"accuracy": 0.96}, "second": {"accuracy": 0.975}}
    recovery = {**scores, "metric": "accuracy", "records": 400, "epochs": 3, "kept": "second"}
    ancestor = {"name": "trained", "digest": Model(parent).digest, "component": "train"}
    step = {"name": "pruned 80%", "digest": "1" * 64, "component": "prune", "parameters": {"sparsity": 0.8}}
    step["inputs"] = ["model", "module"]  # and no teacher
    card = json.loads((child / "model_card.json").read_text())
    card["lineage"] = [ancestor, {**step, "recovery": recovery}]
    (child / "model_card.json").write_text(json.dumps(card))
