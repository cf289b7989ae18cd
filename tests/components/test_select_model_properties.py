"""Test properties of the choice for random models, goals and orders."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reports import DIGITS, TRAINED, Row, join_rows
from tfopt.components.select_model.decide import choose
from tfopt.measurement.goals import read_goals
from tfopt.measurement.pareto import pareto_front
from tfopt.measurement.significance import is_significantly_better

ROWS = st.builds(
    Row,
    name=st.just(""),
    format=st.just("tflite"),
    accuracy=st.floats(0.9, 1.0),
    delta=st.tuples(st.floats(-0.03, 0.01), st.floats(0, 0.01), st.floats(0, 0.01)).map(
        lambda d: (d[0], d[0] - d[1], d[0] + d[2])
    ),
    p50=st.sampled_from([0.1, 0.2, 0.4]),
    speedup=st.tuples(st.floats(0.5, 4.0), st.floats(1.0, 1.3)).map(
        lambda s: (
            s[0], s[0] / s[1], s[0] * s[1],
            "faster" if s[0] / s[1] > 1.03 else "slower" if s[0] * s[1] < 1 / 1.03 else "within noise",
        )
    ),
    size=st.sampled_from([1000, 2000, 4000]),
    error=st.sampled_from([None, None, None, "it crashed"]),
)  # fmt: skip
OBJECTIVES = st.sampled_from(["latency", "throughput", "size", "memory", "accuracy"])


def measured(rows: list[Row]):
    rows = [TRAINED, *(replace(row, name=f"{number} {row}") for number, row in enumerate(rows))]
    digests = [f"{row.name:*>9}" for row in rows]
    return join_rows(rows, digests)


def passing(models, proven):
    goals = read_goals(["accuracy max_degradation 0.01", "size threshold 3000000"])
    return {
        model.name
        for model in models
        if not model.error and not any(goal.failure(model, proven=proven, examples=1000) for goal in goals)
    }


@settings(max_examples=60)
@given(st.lists(ROWS, max_size=5), OBJECTIVES, st.booleans())
def test_the_choice_meets_all_goals_and_is_significantly_better_or_is_the_baseline(rows, objective, proven):
    models = measured(rows)
    passed = passing(models, proven)
    chosen = choose(models, passed, objective)
    assert chosen is models[0] or (chosen.name in passed and is_significantly_better(chosen, objective))
    if chosen is models[0]:
        assert not any(is_significantly_better(model, objective) for model in models[1:] if model.name in passed)


@settings(max_examples=60)
@given(st.lists(ROWS, max_size=5), OBJECTIVES, st.randoms())
def test_the_order_of_the_candidates_does_not_change_the_choice(rows, objective, random):
    models = measured(rows)
    passed = passing(models, True)
    shuffled = models[1:]
    random.shuffle(shuffled)
    assert choose(models, passed, objective).name == choose([models[0], *shuffled], passed, objective).name


@settings(max_examples=60)
@given(st.lists(ROWS, max_size=6))
def test_the_pareto_front_has_the_models_that_no_other_dominates(rows):
    models = measured(rows)
    front = pareto_front(models, "accuracy")
    merits = {m.name: (m.value("accuracy"), -m.value("latency"), -m.value("size")) for m in models if not m.error}
    for name, own in merits.items():
        dominated = any(
            other != own and all(b >= a for a, b in zip(own, other, strict=True)) for other in merits.values()
        )
        assert (name in front) is not dominated
    assert front


def test_the_choice_between_equal_models_does_not_depend_on_the_order():
    twins = [replace(DIGITS[4], name=name) for name in ("one", "other")]
    models = measured(twins)
    passed = {model.name for model in models}
    first, second = choose(models, passed, "latency"), choose([models[0], *models[:0:-1]], passed, "latency")
    assert first is second
