"""Test that measurements which other processes disturbed meet no goal, select no model and are compared with no run."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.components.decisions import decide, reason
from tests.components.test_select_model_history import LITE, run, runs
from tests.reports import DIGITS, TRAINED, Row, join_rows, make_models, write_reports
from tfopt.artifacts import Decision
from tfopt.cli.commands import exit_code_of
from tfopt.cli.terminal.summary_table import print_summary
from tfopt.components.select_model.component import select_model
from tfopt.measurement.goals import read_goals
from tfopt.measurement.significance import is_indistinguishable, is_significantly_better
from tfopt.model_store.run_history import PARENT, WINNER, ModelRecord, RunHistory, read_runs

LOADED = Row("loaded", p50=0.004, speedup=(96.1, 49.5, 128.0, "unstable"), size=45_000)
SLOW = Row("slow", p50=0.8, speedup=(0.5, 0.49, 0.51, "unstable"), size=45_000)
SPEED_GOALS = [
    "latency threshold 5",
    "latency min_improvement 20%",
    "latency_p90 max_degradation 50%",
    "latency_p99 threshold 5",
    "throughput min_improvement 20%",
    "throughput threshold 1",
    "load max_degradation 50%",
]


@pytest.mark.parametrize("goal", SPEED_GOALS)
@pytest.mark.parametrize("proven", [True, False])
def test_no_goal_of_speed_is_met_by_an_unstable_comparison(goal, proven):
    _, fast, loaded = join_rows([TRAINED, replace(LOADED, speedup=(96.1, 49.5, 128.0, "faster")), LOADED], ["", *"ab"])
    (parsed,) = read_goals([goal])
    assert parsed.failure(fast, proven=proven, examples=0) is None
    failure = parsed.failure(loaded, proven=proven, examples=0)
    assert "is unstable: not compared, because other processes used the machine; the goal is" in failure
    assert parsed.shortfall(loaded, proven=proven) == 0.0


@pytest.mark.parametrize("goal", ["accuracy threshold 0.9", "size min_improvement 20%", "memory max_degradation 1%"])
def test_other_goals_do_not_depend_on_the_load_of_the_machine(goal):
    (parsed,) = read_goals([goal])
    assert parsed.failure(join_rows([TRAINED, LOADED], ["", "a"])[1], proven=True, examples=0) is None


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_no_candidate_is_selected_for_an_unstable_speed(tmp_path, objective):
    decision = decide([TRAINED, LOADED], tmp_path, objective=objective)
    assert (decision["selected"], decision["unstable"]) == ("trained", ["loaded"])
    assert "1 of 2 models is unstable and was not compared, because other processes used" in decision["reason"]
    assert "is unstable: not compared" in reason(decision, "loaded")
    assert decision["models"][1]["summary"] == "unstable: not compared"
    assert not any("96" in text for text in (decision["reason"], reason(decision, "loaded")))


def test_a_missed_goal_of_speed_is_explained_in_the_decision(tmp_path):
    decision = decide([TRAINED, LOADED], tmp_path, goals=["latency min_improvement 20%"])
    assert reason(decision, "loaded").startswith("76% smaller, but latency is unstable: not compared")
    assert decision["models"][1]["summary"] == "unstable: not compared"
    assert (decision["models"][1]["passed"], "missed_by" in decision["models"][1]) == (False, False)


def test_a_candidate_that_was_compared_is_selected_among_unstable_ones(tmp_path):
    decision = decide([TRAINED, LOADED, DIGITS[1]], tmp_path)
    assert decision["selected"] == "folded" and decision["unstable"] == ["loaded"]


def test_if_the_baseline_misses_a_goal_unstable_candidates_are_ranked_by_size(tmp_path):
    """Select among candidates that need not be faster: their disturbed speeds do not rank them."""
    rows = [replace(TRAINED, accuracy=0.9), replace(LOADED, size=90_000), SLOW]
    assert decide(rows, tmp_path, goals=["accuracy threshold 0.97"])["selected"] == "slow"


def test_an_unstable_ratio_to_the_fastest_model_does_not_make_models_indistinguishable():
    fastest = Row("fastest", speedup=(8.0, 7.9, 8.1, "faster"), p50=0.05)
    other = Row("other", speedup=(2.0, 1.9, 2.1, "faster"), p50=0.2, over_fastest=(0.25, 0.2, 0.3, "unstable"))
    _, fastest, other = join_rows([TRAINED, fastest, other], ["", "a", "b"])
    assert is_significantly_better(other, "latency")
    assert not is_indistinguishable(other, fastest, "latency")


def test_the_page_the_table_and_the_log_report_it_and_explain_the_color(tmp_path, caplog):
    rows = [TRAINED, DIGITS[1], LOADED]
    models = make_models(rows, tmp_path / "models")
    evaluation, benchmark = write_reports(rows, models, tmp_path)
    with caplog.at_level("WARNING"):
        outputs = select_model(models[0], models[1:], evaluation, benchmark, *(tmp_path / name for name in "sdb"))
    assert "unstable, speed not compared: loaded" in caplog.text
    page = (tmp_path / "d" / Decision.page).read_text()
    explanation = page[page.index('id="unstable"') :]
    assert "may differ on a quiet machine" in explanation and "meets no goal and selects no model" in explanation
    assert "96.1" not in page.split("<tbody")[1].split("</tbody>")[0]
    console = Console(file=io.StringIO(), width=200)
    print_summary(outputs["decision"], evaluation, benchmark, console)
    row = next(line for line in console.file.getvalue().splitlines() if line.lstrip().startswith("loaded"))
    assert "unstable" in row and "96.1" not in row
    assert outputs["decision"].metadata["unstable"] == 1


def test_a_disturbed_baseline_meets_no_threshold_of_latency_and_is_not_blessed(tmp_path):
    rows = [TRAINED, replace(SLOW, speedup=(0.5, 0.49, 0.51, "slower"))]
    models = make_models(rows, tmp_path / "models")
    evaluation, benchmark = write_reports(rows, models, tmp_path)
    content = benchmark.read()
    content["models"][0] |= {"rounds": {"1": 60, "32": 60}}
    for disturbed, blessed in ((9, True), (10, False)):
        content["models"][0]["latency"]["1"]["disturbed_rounds"] = disturbed
        content["models"][1]["speedup"]["1"]["verdict"] = "slower" if blessed else "unstable"
        benchmark.write(content)
        outputs = select_model(
            models[0], models[1:], evaluation, benchmark, *(tmp_path / f"{disturbed}{name}" for name in "sdb"),
            goals=["latency threshold 5"],
        )  # fmt: skip
        decision = outputs["decision"].load()
        assert decision.blessed is blessed
        assert decision.is_undecided is not blessed
    assert "other processes used the machine in 10 of 60 rounds" in decision.chosen.reasons[0]


@pytest.mark.parametrize(
    ("rows", "undecided"),
    [([TRAINED, LOADED], True), ([TRAINED, DIGITS[1]], False), ([TRAINED, LOADED, DIGITS[1]], False)],
)
def test_a_run_is_undecided_if_the_baseline_stays_and_speeds_were_not_compared(tmp_path, rows, undecided):
    decide(rows, tmp_path)
    decision = Decision(tmp_path / "decision")
    assert decision.load().is_undecided is undecided
    assert exit_code_of([decision]) == (4 if undecided else 0)


def test_a_run_without_disturbance_in_which_no_model_meets_the_goals_ends_with_code_3(tmp_path):
    decide([TRAINED, DIGITS[1]], tmp_path, goals=["accuracy threshold 0.999"])
    assert exit_code_of([Decision(tmp_path / "decision")]) == 3


def test_disturbed_speeds_are_not_compared_with_earlier_runs(tmp_path):
    served = runs(tmp_path, 3)
    loaded = replace(LITE, p50=5.0, speedup=(8.0, 7.8, 8.2, "unstable"), accuracy=0.99)
    decision = run(tmp_path / "loaded", served, loaded, objective="size", watch=["latency max_regression 10%"])
    assert decision["selected"] == "tflite"
    assert decision["history"]["regressions"] == []
    assert [trend.get("disturbed", False) for trend in decision["history"]["trends"]] == [True, False]
    assert read_runs(served, 10)[-1].winner.disturbed == ["latency", "latency_p90", "latency_p99", "throughput", "load"]


def test_later_runs_are_not_compared_with_disturbed_speeds(tmp_path):
    served = runs(tmp_path, 1)
    (earlier,) = read_runs(served, 1)
    slow = replace(earlier, winner=replace(earlier.winner, disturbed=["latency"]))
    history = RunHistory([earlier, slow], earlier.conditions)
    latency = earlier.winner.metrics["latency"]
    assert history.values(WINNER, "latency") == [latency, None]
    assert None not in history.values(WINNER, "latency_p99") + history.values(PARENT, "latency")
    assert ModelRecord("", "", "", {"size": 1.0}).undisturbed("size") == 1.0
