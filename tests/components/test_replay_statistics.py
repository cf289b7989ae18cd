"""Test the intervals and verdicts of replay by simulation."""

import numpy as np
import pytest

from tfopt.components.replay.answers import AnswerComparison, Disagreement, schedule_looks
from tfopt.components.replay.latency import compare_latency
from tfopt.components.replay.replay_goals import read_replay_goals
from tfopt.components.replay.verdict import NOT_MEASURED, describe_blindness, judge_latency
from tfopt.errors import ComponentError
from tfopt.measurement.confidence_bounds import share_interval
from tfopt.measurement.interim_looks import LookSchedule
from tfopt.serving.load_generator import OpenLoop, arrival_times


def simulate(share: float, records: int, trials: int, limit: str) -> tuple[list[str | None], list[float], int]:
    """Return how each comparison of equal share ended, after which part, and how many intervals missed the share."""
    draw, goals = np.random.default_rng(3), read_replay_goals([f"disagreement max {limit}"])
    schedule, ends, parts, missed = schedule_looks(records), [], [], 0
    for _ in range(trials):
        differs = draw.random(records) < share
        counts, begin, decision = Disagreement(goals, schedule), 0, None
        for look, error in schedule.errors.items():
            counts.add(differs[begin:look], {})
            begin, decision = look, counts.look(error)
            if decision:
                break
        ends.append(decision)
        parts.append(begin / records)
        missed += not counts.looks[-1].low <= share <= counts.looks[-1].high
    return ends, parts, missed


def test_early_ends_keep_the_error_rate():
    """With the share at the limit, "met" and "missed" are both wrong: each may be found in 2.5 % of all trials."""
    ends, _, missed = simulate(0.02, 2000, 1000, "2%")
    assert ends.count("met") <= 25 and ends.count("missed") <= 25
    assert missed <= 50
    assert ends.count("met") + ends.count("missed") >= 5  # not only because nothing is ever decided


def test_looks_without_divided_errors_would_decide_wrongly_more_often():
    draw, looks = np.random.default_rng(3), [*schedule_looks(2000).errors]
    wrong = 0
    for _ in range(400):
        counts = np.cumsum(draw.random(2000) < 0.02)
        ends = [share_interval(int(counts[look - 1]), look, 0.05) for look in looks]
        wrong += any(low > 0.02 or high < 0.02 for low, high in ends)
    assert wrong > 0.08 * 400


@pytest.mark.parametrize(("share", "decision", "most"), [(0.5, "missed", 0.04), (0.0, "met", 0.3), (0.002, "met", 1.0)])
def test_clear_cases_end_early(share, decision, most):
    ends, parts, _ = simulate(share, 5000, 20, "1%")
    assert ends == [decision] * 20
    assert max(parts) <= most


def test_the_errors_of_all_looks_are_five_percent():
    for records in (1, 40, 100, 2000, 10**6):
        schedule = schedule_looks(records)
        assert sum(schedule.errors.values()) == pytest.approx(0.05)
        assert [*schedule.errors] == sorted(schedule.errors) and max(schedule.errors) == records
    assert isinstance(schedule, LookSchedule)


@pytest.mark.parametrize(
    ("served", "answer", "rule", "expected"),
    [
        ([[0.6, 0.4], [0.2, 0.8]], [[0.9, 0.1], [0.7, 0.3]], "auto", [False, True]),
        ([[0.6, 0.4], [0.2, 0.8]], [[0.9, 0.1], [0.2, 0.8]], "values", [True, False]),
        ([[1.0], [3.0]], [[1.015], [3.05]], "auto", [False, True]),
        ([1.0, 3.0], [1.0, 3.1], "auto", [False, True]),
        ([[[1.0, 2.0]], [[3.0, 0.0]]], [[[1.0, 2.0]], [[0.0, 3.0]]], "classes", [False, True]),
        ([5, 6], [5, 7], "auto", [False, True]),
        ([b"a", b"b"], [b"a", b"c"], "auto", [False, True]),
        ([[np.nan, 1.0], [2.0, 1.0]], [[np.nan, 1.0], [2.0, 1.0]], "auto", [False, False]),
        ([np.inf, 1.0], [np.inf, 1.0], "auto", [False, False]),
        ([np.nan, 1.0], [2.0, 1.0], "auto", [True, False]),
    ],
)
def test_answers_differ_by_class_value_or_text(served, answer, rule, expected):
    one, other = ({"y": np.array(values, object if values[0] == b"a" else None)} for values in (served, answer))
    comparison = AnswerComparison(rule, 0.01)
    comparison.fit([one])
    assert comparison.disagreeing(one, other, 2).tolist() == expected


def test_independent_probabilities_are_compared_by_value():
    """A mask whose other pixels change has the same largest pixel."""
    comparison = AnswerComparison("auto", 0.01)
    mask, class_ = np.array([[0.9, 0.8, 0.1], [0.9, 0.2, 0.7]]), np.array([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]])
    comparison.fit([{"mask": mask, "class": class_}])
    changed = {"mask": np.array([[0.9, 0.1, 0.8], [0.9, 0.2, 0.7]]), "class": class_}
    assert comparison.disagreeing({"mask": mask, "class": class_}, changed, 2).tolist() == [True, False]
    closer = {"mask": mask, "class": np.array([[0.6, 0.4, 0.0], [0.2, 0.5, 0.3]])}
    assert comparison.disagreeing({"mask": mask, "class": class_}, closer, 2).tolist() == [False, True]


def test_other_shapes_and_new_nan_are_errors():
    comparison, served = AnswerComparison("auto", 0.01), {"y": np.array([[1.0, 2.0]])}
    comparison.fit([served])
    for answer in (np.array([[1.0]]), np.array([[np.nan, 2.0]]), np.array([[np.inf, 2.0]])):
        with pytest.raises(ComponentError, match="output 'y'"):
            comparison.disagreeing(served, {"y": answer}, 1)
    with pytest.raises(ComponentError, match="NaN or infinity for all"):
        comparison.fit([{"y": np.array([np.nan])}])


def loads(slower: float, seed: int = 0, *, wild: float = 0.2):
    """Return loads of a queue of one worker with random service times, for the second model longer by a factor."""
    draw = np.random.default_rng(seed)

    def queue(factor: float):
        def load(numbers, times):
            free, latencies = 0.0, []
            for time in times:
                free = max(free, time) + factor * draw.gamma(1 / wild**2, 0.005 * wild**2)
                latencies.append(free - time)
            return OpenLoop(np.array(latencies), np.zeros(1))

        return load

    return {"served": queue(1.0), "model": queue(slower)}


def test_a_slower_version_misses_goals_on_latency_because_its_requests_queue():
    arrivals = arrival_times("poisson", 120, 3600)
    latency = compare_latency(loads(1.35), arrivals).percentiles()
    assert latency["p99"].model.value > 1.8 * latency["p99"].served.value  # 1.35 times the service, and the queue
    missed = ["p99 max_regression 10%", "p99 max_degradation 10%", "p99 max 20"]
    goals = read_replay_goals([*missed, "p50 max_regression 400%", "p99 max 5000"])
    results = judge_latency(goals, latency)
    assert [result.met for result in results] == [False, False, False, True, True]
    assert "against the served version" in results[0].reason and "latency (p99)" in results[0].reason
    assert describe_blindness(goals[:1], latency) == []


def test_an_equal_version_is_no_regression_and_a_short_replay_proves_nothing():
    latency = compare_latency(loads(1.0), arrival_times("poisson", 120, 3600)).percentiles()
    goals = read_replay_goals(["p99 max_regression 10%", "p50 max_degradation 15%"])
    assert [result.met for result in judge_latency(goals, latency)] == [True, True]
    short = compare_latency(loads(1.0), np.array([0.0, 0.01, 0.02])).percentiles()
    proven = judge_latency(read_replay_goals(["p99 max 9000", "p50 max_degradation 900%"]), short)
    assert not any(result.met for result in proven) and "no bound" in proven[0].reason
    loose = read_replay_goals(["p99 max_regression 900%"])
    assert "measured values alone" in describe_blindness(loose, short)[0]
    noisy = compare_latency(loads(1.0, wild=2), arrival_times("poisson", 120, 600)).percentiles()
    assert "may be missed" in describe_blindness(goals, noisy)[0]
    assert {result.reason for result in judge_latency(goals, {})} == {NOT_MEASURED}


@pytest.mark.nightly
def test_intervals_of_percentiles_contain_the_difference():
    """The bootstrap of 20 windows: the true difference of equal models is 0."""
    missed = dict.fromkeys(("p50", "p90", "p99"), 0)
    for seed in range(300):
        latency = compare_latency(loads(1.0, seed), arrival_times("poisson", 120, 1200, seed)).percentiles()
        for name in missed:
            missed[name] += not latency[name].difference.low <= 0 <= latency[name].difference.high
    assert all(count <= 0.1 * 300 for count in missed.values()), missed
