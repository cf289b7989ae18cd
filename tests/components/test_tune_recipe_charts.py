"""Test the charts of a search, and its Optuna journal."""

import re
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.components.test_tune_recipe_earlier_trials import EXACT, FAST, WORSE, run
from tfopt.components.tune_recipe.journal import STUDY, write_journal
from tfopt.components.tune_recipe.report import render_report
from tfopt.reports.recipe_report import RecipeReport

MEASURED = {"fast": FAST, "none": None, "exact": EXACT, "worse": WORSE}


@pytest.fixture(scope="module")
def report() -> RecipeReport:
    """Return a search of four trials; one could not be made, and one was given up."""
    searched = run(run(None, {"earlier": replace(FAST, speed=9.0)}), MEASURED | {"large": None})
    scores = {"fast": -2.0, "exact": -1.5, "worse": 1.0, "none": 10.0, "large": 8.0}
    trials = [
        replace(trial, score=scores[trial.name], state="given up" if trial.name == "large" else trial.state)
        for trial in searched.trials
    ]
    return replace(searched, trials=trials)


@pytest.fixture(scope="module")
def page(report: RecipeReport) -> str:
    return render_report(report)


def picture(page: str, key: str) -> str:
    """Return the SVG with an id on the page."""
    return re.search(rf'<svg [^>]*aria-labelledby="{key}-title .*?</svg>', page, re.S)[0]


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_the_front_has_all_measured_recipes_and_the_model_itself(page: str, width: str):
    svg = picture(page, f"front-{width}")
    tooltips = re.findall(r"<circle[^>]*><title>([^<]*)</title>", svg)
    assert {tooltip.partition(":")[0] for tooltip in tooltips} == {
        "fast", "exact", "worse", "earlier", "the model itself",
    }  # fmt: skip
    assert "fast: accuracy -0.40 points, 8.00x as fast, 30% of the size" in tooltips


def test_faster_recipes_are_further_left_and_exact_ones_further_up(page: str):
    circles = re.findall(r"<circle([^>]*)><title>([^<:]*)", picture(page, "front-wide"))
    places = {
        name: [float(re.search(rf'{axis}="([-\d.]+)"', place)[1]) for axis in ("cx", "cy")] for place, name in circles
    }
    assert sorted(places, key=lambda name: places[name][0]) == ["earlier", "fast", "exact", "the model itself", "worse"]
    assert places["exact"][1] < places["worse"][1] < places["fast"][1]  # pixels from the top


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_the_history_has_the_score_of_each_measured_trial(page: str, width: str):
    svg = picture(page, f"history-{width}")
    assert re.findall(r"<title>(\d\. \w+: [-\d.]+);", svg) == ["1. fast: -2.00", "3. exact: -1.50", "4. worse: 1.00"]
    assert "Score of 3 measured trials of 5" in svg


def test_the_page_has_no_script_and_no_outside_request(page: str):
    assert not re.search(r"<script|(src|href)=\"(?!data:|#|decision.html)|url\((?!#)", page)


def test_a_search_without_a_measurement_has_a_page():
    page = render_report(run(None, {"none": None}))
    assert "<h2>History</h2>" not in page and "<h2>Pareto front</h2>" in page


def test_optuna_loads_the_study_back(report: RecipeReport, tmp_path: Path):
    write_journal(report, tmp_path / "journal.log")
    study = optuna.load_study(
        study_name=STUDY, storage=JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    )
    assert len(study.trials) == len(report.trials) == 5
    states = {trial.user_attrs["recipe"]: trial.state for trial in study.trials}
    complete = dict.fromkeys(["fast", "exact", "worse"], TrialState.COMPLETE)
    assert states == complete | {"none": TrialState.FAIL, "large": TrialState.PRUNED}
    assert study.metric_names == ["gain in quality", "speed", "relative size"]
    assert study.trials[0].values == [FAST.quality, FAST.speed, FAST.size]
    assert {trial.user_attrs["recipe"] for trial in study.best_trials} == {"fast", "exact"}
    assert study.trials[0].params == report.trials[0].choices
    assert [trial.datetime_start for trial in study.trials[1:]] == [
        trial.datetime_complete for trial in study.trials[:-1]
    ]
