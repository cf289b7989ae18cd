"""Test which comparisons of `benchmark` need further rounds at a look, on simulated times."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from tfopt.artifacts import Model
from tfopt.components.benchmark import comparison
from tfopt.components.benchmark.comparison import Look, compare, compare_starts
from tfopt.components.benchmark.component import benchmark
from tfopt.components.benchmark.measured_model import MeasuredModel, RoundLoad
from tfopt.components.benchmark.parameters import Settings
from tfopt.components.select_model.component import select_model
from tfopt.measurement.goals import Objective
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.measurement.speedup import speedup

SCHEDULE, MIN_EFFECT = LookSchedule.of(60), 0.005


@pytest.fixture
def measured(tmp_path):
    """Return the function that simulates models with given relative times; the first one is the baseline."""
    (tmp_path / "model.tflite").touch()
    model = Model(tmp_path / "model.tflite")

    def measure(times: dict[str, float], rounds: int = 10, noise: float = 0.01, seed: int = 0) -> list[MeasuredModel]:
        rng, models = np.random.default_rng(seed), []
        for name, seconds in times.items():
            draws = 1e6 * seconds * np.exp(rng.normal(0, noise, rounds))
            models.append(MeasuredModel(name, model, None, is_baseline=not models, open_sizes={1}))
            models[-1].samples[1] = [np.array([draw], np.int64) for draw in draws]
            models[-1].baseline_samples[1] = list(models[0].samples[1])
        return models

    return measure


def look_at(models: list[MeasuredModel], min_effect: float = MIN_EFFECT, objective: str = "latency") -> Look:
    return Look.of(models, 1, Settings(min_effect=min_effect, objective=objective), SCHEDULE)


def find_open(models: list[MeasuredModel], min_effect: float = MIN_EFFECT) -> list[MeasuredModel]:
    return look_at(models, min_effect).find_open()


def describe_stop(models: list[MeasuredModel], model: MeasuredModel, min_effect: float = MIN_EFFECT) -> str:
    look = look_at(models, min_effect)
    assert model not in look.find_open()
    return look.describe_stop(model)


def shorten(model: MeasuredModel, rounds: int) -> None:
    del model.samples[1][rounds:], model.baseline_samples[1][rounds:]


def names(models: list[MeasuredModel]) -> list[str]:
    return [model.name for model in find_open(models)]


def test_a_clear_winner_ends_the_measurement_of_all_at_the_first_look(measured):
    assert names(measured({"baseline": 1, "fast": 0.5, "faster": 0.1, "slow": 2})) == []


def test_only_the_leaders_that_cannot_be_told_apart_and_the_baseline_continue(measured):
    times = {"baseline": 1, "middle": 0.5, "first": 0.1, "second": 0.102, "slow": 2}
    assert names(measured(times)) == ["baseline", "first", "second"]


def test_leaders_are_told_apart_at_the_batch_size_of_the_objective_only(measured):
    models = measured({"baseline": 1, "same?": 0.99, "first": 0.1, "second": 0.102})
    look = look_at(models, objective="throughput")
    assert [model.name for model in look.find_open()] == ["baseline", "same?"]
    assert look.describe_stop(models[3]) == "decided after 10 of 60 rounds"
    assert look.compare_with_fastest(models[3]).verdict == "within noise"


def test_the_objective_determines_the_batch_size():
    sizes = {name: Settings(("8", "2", "32"), objective=name).objective_size for name in get_args(Objective)}
    assert sizes.pop("throughput") == 32
    assert set(sizes.values()) == {2}


def test_other_objectives_than_throughput_have_the_measurements_for_latency():
    checked = [benchmark.check({"objective": name})["objective"] for name in get_args(Objective)]
    assert checked == ["latency", "throughput", *["latency"] * 6, "cold_start"]
    assert select_model.check({"objective": "size"})["objective"] == "size"


def test_a_model_with_an_undecided_comparison_with_the_baseline_continues(measured):
    assert names(measured({"baseline": 1, "fast": 0.1, "same?": 0.99})) == ["baseline", "same?"]


def test_equivalent_models_are_decided_when_their_ratio_is_known_within_one_percent(measured):
    times = {"baseline": 1, "same": 1.001, "fast": 0.1, "as fast": 0.1001}
    assert names(measured(times)) == ["baseline", "same"]
    models = measured(times, rounds=40, noise=0.006)
    assert names(models) == []
    assert {describe_stop(models, model) for model in models[1:]} == {"decided after 40 of 60 rounds"}


def test_a_difference_below_the_minimum_effect_is_equivalent(measured):
    models = measured({"baseline": 1, "same": 1.02}, noise=0.001)
    assert [describe_stop(models, models[1], effect) for effect in (0.0, 0.05)] == ["decided after 10 of 60 rounds"] * 2
    # Further rounds would not bring an interval that contains the limit to either side of it.
    assert describe_stop(models, models[1], 0.02) == (
        "stopped after 10 of 60 rounds, because the others would hardly show a difference from baseline"
    )


def test_leaders_that_the_remaining_rounds_would_hardly_tell_apart_stop(measured):
    models = measured({"baseline": 1, "first": 0.1, "second": 0.1001, "slow": 2}, rounds=26, noise=0.03, seed=1)
    assert names(models) == []
    assert describe_stop(models, models[1]).endswith("would hardly show a difference from second")
    assert describe_stop(models, models[2]).endswith("would hardly show a difference from first")
    assert describe_stop(models, models[3]) == "decided after 26 of 60 rounds"


def test_the_difference_between_runtimes_is_part_of_what_the_remaining_rounds_must_show(measured, monkeypatch):
    """Compare models that differ by 2 %, when their processes may differ by 2 % because of their runtimes."""
    models = measured({"baseline": 1, "first": 0.1, "second": 0.102}, rounds=16, noise=0.02, seed=2)
    assert names(models) == ["baseline", "first", "second"]
    monkeypatch.setattr(comparison, "_systematic_error", lambda model, other: 0.02)
    assert names(models) == []


def test_models_are_compared_with_the_fastest_without_the_noise_of_the_baseline(measured):
    """Compare models that differ by 5 % when the baseline's own times differ by 30 % between the rounds."""
    models = measured({"baseline": 1, "first": 0.1, "second": 0.105}, noise=0.005)
    baseline = np.exp(np.random.default_rng(3).normal(0, 0.3, 10))
    models[0].samples[1] = [calls * scale for calls, scale in zip(models[0].samples[1], baseline, strict=True)]
    for model in models:
        model.baseline_samples = models[0].samples
    look = look_at(models)
    assert look.speedups["first"].low < look.speedups["second"].high  # the intervals over the baseline overlap
    ratio = look.compare_with_fastest(models[2])
    assert ratio.verdict == "slower" and 1 / 1.08 < ratio.low < 1 / 1.05 < ratio.high < 1 / 1.03
    assert look.compare_with_fastest(models[1]) is None
    assert names(models) == []


def test_a_difference_of_less_than_one_percent_from_the_fastest_is_no_verdict(measured):
    models = measured({"baseline": 1, "first": 0.1, "second": 0.1006}, noise=0.0001)
    ratio = look_at(models).compare_with_fastest(models[2])
    assert ratio.verdict == "within noise" and ratio.high < 1
    assert names(models) == []


def test_a_stopped_model_is_compared_by_its_own_rounds_and_does_not_start_again(measured):
    models = measured({"baseline": 1, "stopped": 0.98, "open": 0.985}, rounds=16)
    shorten(models[1], 10)
    models[1].open_sizes.clear()
    assert "stopped" not in names(models)
    whole = measured({"baseline": 1, "stopped": 0.98, "open": 0.985}, rounds=16)
    for model in whole:
        shorten(model, 10)
    estimates = [compare(rows[1], rows[0], 1, MIN_EFFECT, SCHEDULE) for rows in (models, whole)]
    assert estimates[0] == estimates[1]


def test_the_interval_at_an_early_look_is_wider_than_one_of_a_single_look(measured):
    baseline, model = measured({"baseline": 1, "model": 0.9})
    early = compare(model, baseline, 1, MIN_EFFECT, SCHEDULE)
    single = compare(model, baseline, 1, MIN_EFFECT, LookSchedule.of(10))
    assert early.low < single.low and single.high < early.high


def test_another_runtime_than_the_baselines_widens_the_interval(measured, tmp_path):
    models = measured({"baseline": 1, "same": 0.9, "other": 0.9})
    (tmp_path / "model.onnx").touch()
    models[2] = replace(models[2], model=Model(tmp_path / "model.onnx"))
    baseline, *times = (np.array([calls[0] for calls in model.samples[1]], float) for model in models)
    for model, own, error in zip(models[1:], times, (0.0, 0.02), strict=True):
        settings = {"min_effect": MIN_EFFECT, "systematic_error": error, "error": SCHEDULE.errors[10]}
        again = speedup(np.ones(10), own / baseline, **settings)
        assert compare(model, models[0], 1, MIN_EFFECT, SCHEDULE) == again


def test_without_a_baseline_time_or_a_candidate_all_rounds_are_run(measured):
    models = measured({"baseline": 1, "fast": 0.1})
    assert find_open(models[:1]) == models[:1]
    del models[0].samples[1]
    assert find_open(models) == models[1:]


def test_a_failed_candidate_is_left_out(measured):
    models = measured({"baseline": 1, "fast": 0.5, "failed": 0.49})
    models[2].error = "killed"
    assert names(models) == []


def test_starts_are_compared_round_by_round(measured):
    """The times of calls, which are equal, play no part."""
    models, rng = measured({"baseline": 1, "quick": 1, "slow": 1, "failed": 1}, rounds=60), np.random.default_rng(1)
    for model, seconds in zip(models, (2.0, 0.5, 3.0, 0.1), strict=True):
        model.starts, model.is_warm = list(seconds * np.exp(rng.normal(0, 0.1, 60))), {1: True}
    models[-1].error = "it does not load"
    starts = compare_starts(models, Settings(), SCHEDULE)
    baseline, quick, slow = (starts[name] for name in ("baseline", "quick", "slow"))
    assert (len(starts), baseline.over_baseline, quick.over_best) == (3, None, None)
    assert (quick.over_baseline.verdict, slow.over_baseline.verdict) == ("faster", "slower")
    assert quick.over_baseline.low < 4 < quick.over_baseline.high
    assert slow.over_best.low < 1 / 6 < slow.over_best.high
    assert quick.seconds == pytest.approx(0.5, rel=0.05)
    models[1].loads[1] = [RoundLoad(waited=2.0)] * 40 + [RoundLoad()] * 20
    assert compare_starts(models, Settings(), SCHEDULE)["quick"].over_baseline.verdict == "unstable"


def test_stopping_early_does_not_change_the_winner(measured):
    """Run close races with looks: the chosen model is the fastest, or less than 1 % slower."""
    rng = np.random.default_rng(1)
    for _ in range(30):
        times = {
            "baseline": 1.0,
            **{f"model {index}": float(time) for index, time in enumerate(rng.uniform(0.1, 0.12, 4))},
        }
        whole = measured(times, rounds=60)
        models = measured(times, rounds=0)
        for look in SCHEDULE.errors:
            for model, complete in zip(models, whole, strict=True):
                if model.open_sizes:
                    model.samples[1] = complete.samples[1][:look]
                    model.baseline_samples[1] = complete.baseline_samples[1][:look]
            still_open = find_open(models)
            for model in models:
                model.open_sizes = {1} if model in still_open else set()
        estimates = {model.name: compare(model, models[0], 1, MIN_EFFECT, SCHEDULE).value for model in models[1:]}
        chosen = max(estimates, key=lambda name: estimates[name])
        assert times[chosen] <= 1.01 * min(times.values())
